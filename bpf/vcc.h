/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What vCC's programs and whoever loads them share. The same in Rust:
 * crates/dataplane/src/vcc/intf.rs. A connection is named as its packets come
 * in (struct weir_flow): from the peer, to the guest. Its state is struct
 * weir_vcc_flow of vcc_law.h.
 */
#ifndef WEIR_VCC_H
#define WEIR_VCC_H

/* A port whose guest's connections are translated. Written by the loader. */
struct weir_vcc_port {
	struct weir_vcc_terms terms;
	__u32 slack;  /* octets beyond the window that a guest may send; all ones: any */
	__u32 slot;   /* index of its counters */
	__u32 spare;
};
_Static_assert(sizeof(struct weir_vcc_port) == 24, "vcc/intf.rs expects 24");

/* What a port did. Written by the kernel side by atomic addition. */
struct weir_vcc_counters {
	__u64 segments;	 /* of connections that are known, super-packets as one */
	__u64 edited;	 /* of these, changed in anything */
	__u64 lowered;	 /* of these, in their window */
	__u64 unknown;	 /* TCP of connections whose beginning was not seen, or that were pushed out */
	__u64 malformed; /* TCP that no host could read; passed as it was */
	__u64 full;	 /* connections that found no place */
	__u64 policed;	 /* dropped: beyond window and slack */
	__u64 unedited;	 /* was to be changed, and could not be */
};
_Static_assert(sizeof(struct weir_vcc_counters) == 64, "vcc/intf.rs expects 64");

#endif
