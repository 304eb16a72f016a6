/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What vCC's programs and their loader share. The same in Rust:
 * crates/dataplane/src/vcc/intf.rs. The name of a connection is the direction
 * in which its packets come in (struct weir_flow): from the peer, to the guest.
 * Its state is struct weir_vcc_flow of vcc_law.h.
 */
#ifndef WEIR_VCC_H
#define WEIR_VCC_H

/* A port whose guest's connections are translated. Written by the loader. */
struct weir_vcc_port {
	struct weir_vcc_terms terms;
	__u32 slack;  /* octets beyond the window that a guest may send; all ones: any (no policing) */
	__u32 slot;   /* index of its counters and of its table */
	__u32 vm;     /* the VM; for the loader only */
};
_Static_assert(sizeof(struct weir_vcc_port) == 24, "vcc/intf.rs expects 24");

/*
 * What a port did. Written by the kernel side by atomic addition. Segments are
 * counted with super-packets as one.
 */
struct weir_vcc_counters {
	__u64 segments;	 /* of connections that are known */
	__u64 edited;	 /* of these, changed in anything */
	__u64 lowered;	 /* of these, in their window */
	__u64 hidden;	 /* of these, came with a mark that the guest was not shown */
	__u64 unknown;	 /* TCP of connections whose beginning was not seen, or that were pushed out */
	__u64 malformed; /* TCP that no host can parse, passed unchanged; or a guest's own report, dropped */
	__u64 policed;	 /* dropped: beyond window and slack */
	__u64 unedited;	 /* was to be changed, and could not be */
	__u64 begun;	 /* connections that took a place */
	__u64 full;	 /* connections that found none */
	__u64 agreed;	 /* connections that agreed on ECN in the guest's place */
	__u64 deaf;	 /* connections that opened without: the other end knows none, or none was asked for */
	__u64 speaking;	 /* connections of guests that speak ECN themselves */
	__u64 alone;	 /* connections left alone: their SYNs are not both known, or disagree */
	__u64 found;	 /* connections of guests that speak ECN, found not to heed it, and translated from then on */
	__u64 reports;	 /* of `dctcp`, that came from the peer's port and were taken out */
	__u64 asked;	 /* of those begun, by a peer: they have a place apart until they are established */
	__u64 fragments; /* of TCP, from a guest that is policed: dropped */
	__u64 repeated;	 /* SYNs of a guest that is policed, that would have changed an agreed window */
};
_Static_assert(sizeof(struct weir_vcc_counters) == 152, "vcc/intf.rs expects 152");

#endif
