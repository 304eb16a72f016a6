/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What keeps the verifier's work small. It looks at an instruction once for each
 * way to it that differs in what it knows; kernels before 6.2 compare all
 * numbers that it knows, also those that nobody needs to be exact.
 */
#ifndef WEIR_FORGET_H
#define WEIR_FORGET_H

/* What was loaded before is loaded again: what was found out about it is gone. */
static __always_inline void forget(void)
{
	asm volatile("" ::: "memory");
}

/* The same number, of which the verifier knows nothing any more. `any` is one that it never knew. */
static __always_inline __u32 forgotten(__u32 number, __u32 any)
{
	number ^= any;
	asm volatile("" : "+r"(number), "+r"(any));
	return number ^ any;
}

#endif
