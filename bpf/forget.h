/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Keeps the verifier's work small. The verifier visits an instruction once for
 * each way to it that differs in the state it knows. Kernels before 6.2 compare
 * all known numbers, also those whose exact value does not matter.
 */
#ifndef WEIR_FORGET_H
#define WEIR_FORGET_H

/* What was loaded before is loaded again: what was found out about it is gone. */
static __always_inline void forget(void)
{
	asm volatile("" ::: "memory");
}

/*
 * The same number, of which the verifier knows nothing any more. `any` is one
 * that it never knew.
 */
static __always_inline __u32 forgotten(__u32 number, __u32 any)
{
	number ^= any;
	asm volatile("" : "+r"(number), "+r"(any));
	return number ^ any;
}

#endif
