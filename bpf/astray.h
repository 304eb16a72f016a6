/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the programs of astray.bpf.c and their loader share. Mirrored by
 * crates/dataplane/src/astray.rs; sizes are asserted on both sides.
 */
#ifndef WEIR_ASTRAY_H
#define WEIR_ASTRAY_H

/* A tenant at a port. */
struct weir_astray_at {
	__u32 interface; /* the port's index */
	__u32 tenant;
};
_Static_assert(sizeof(struct weir_astray_at) == 8, "astray.rs expects 8");

/* What of its tagged packets went astray. The kernel side counts, the loader says `on_tree`. */
struct weir_astray {
	__u64 unbound;	/* octets on its tree that no queue of its own took */
	__u64 off_tree; /* octets at a port that is not on its tree */
	__u32 on_tree;	/* whether the port is on its tree */
	__u32 spare;
};
_Static_assert(sizeof(struct weir_astray) == 24, "astray.rs expects 24");

#endif
