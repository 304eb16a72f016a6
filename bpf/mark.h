/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the marking program and its loader share. Mirrored by
 * crates/dataplane/src/mark.rs; sizes are asserted on both sides.
 */
#ifndef WEIR_MARK_H
#define WEIR_MARK_H

/* A marking port, by ifindex. Written by the loader only. */
struct weir_mark_port {
	__u64 octet_ns;	    /* time an octet takes to drain, in 1/65536 ns */
	__u64 threshold_ns; /* time the threshold takes to drain */
	__u64 most_ns;	    /* time the largest backlog takes to drain */
	__u32 slot;	    /* index of its queue in `mark_queues` */
	__u32 spare;
};
_Static_assert(sizeof(struct weir_mark_port) == 32, "mark.rs expects 32");

/*
 * A port's virtual queue and what it did. Written by the kernel side under
 * `lock`; the loader only reads it.
 */
struct weir_mark_queue {
	__u64 empty_ns; /* when the virtual queue will have drained */
	__u64 marked;	/* segments marked here */
	__u64 spared;	/* segments above the threshold that cannot be marked */
	__u64 segments; /* all of them */
	struct bpf_spin_lock lock;
	__u32 spare;
};
_Static_assert(sizeof(struct weir_mark_queue) == 40, "mark.rs expects 40");

#endif
