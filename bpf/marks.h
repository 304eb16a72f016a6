/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which congestion marks a guest need not see: those of a pair that gets no more
 * than its receiver offers it. Where losses are the signal, guests answer marks
 * themselves, and a guest beside traffic that no mark slows down would fall
 * below its floor. The same as `Spared` of crates/core/src/marks.rs, which gives
 * the reason; a change of one needs a change of the other.
 *
 * Needs clock.h.
 */
#ifndef WEIR_MARKS_H
#define WEIR_MARKS_H

#define SPARED_SAVED_NS 250000000ull
#define SPARED_DEBT_NS 10000000ull
#define SPARED_STEP (1ull << 31)

/*
 * Whether the mark of a packet is taken off that arrives now; with it, `octets`
 * have arrived of the pair. The caller holds a lock of `spared`.
 */
static __always_inline int spares_mark(struct weir_spared *spared, __u64 now, __u64 octets,
					  __u64 offer_bps)
{
	__u64 since = earlier(octets - spared->octets, SPARED_STEP);
	__u64 least = now > SPARED_SAVED_NS ? now - SPARED_SAVED_NS : 0;
	__u64 took;

	spared->octets = octets;
	if (!offer_bps)
		return 0;
	took = earlier(time_for(since, offer_bps), NEVER >> 2);
	spared->due_ns = earlier(later(spared->due_ns + took, least), now + SPARED_DEBT_NS);
	return spared->due_ns <= now;
}

#endif
