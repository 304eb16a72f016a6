/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the program of spread.bpf.c and its loader share. Mirrored by
 * crates/dataplane/src/spread.rs; sizes are asserted on both sides.
 */
#ifndef WEIR_SPREAD_H
#define WEIR_SPREAD_H

#define WEIR_SPREAD_PORTS 16

/* The ports to a destination, written by the loader. */
struct weir_spread {
	__u32 count;	 /* 1 to WEIR_SPREAD_PORTS */
	__u32 by_packet; /* each packet takes the next one; else a flow keeps one */
	__u32 salt;	 /* two switches that a flow passes choose independently */
	__u32 ports[WEIR_SPREAD_PORTS];
};
_Static_assert(sizeof(struct weir_spread) == 76, "spread.rs expects 76");

#endif
