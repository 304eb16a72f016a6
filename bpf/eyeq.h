/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What EyeQ's programs and the agent share (see eyeq.bpf.c). Mirrored by
 * crates/dataplane/src/eyeq/intf.rs; sizes are asserted on both sides. As in
 * intf.h every map has one writer, named at its struct; integers are in host
 * order, addresses in network order.
 */
#ifndef WEIR_EYEQ_H
#define WEIR_EYEQ_H

#define WEIR_FEEDBACK_VERSION 1
#define WEIR_FEEDBACK_PROTOCOL 253 /* in IPv4: for experimentation */
#define WEIR_FEEDBACK_FRAME 60	   /* octets without FCS: Ethernet has no shorter */

/*
 * The body of a feedback packet, behind an IPv4 header without options. See
 * crates/wire/src/feedback.rs, which defines it. In halves of network order, as
 * the fields lie.
 *
 * The frame was another packet. If that packet came with a checksum that is
 * still to be computed, the device or the kernel will write one at its place,
 * and no program can prevent it. So no field is there.
 */
struct weir_feedback {
	__u8 version;
	__u8 key_id;
	__be16 rate;	 /* units */
	__be16 sequence; /* bits 16 to 31; the low ones are IPv4's identification */
	__be16 udp_sum;	 /* anything */
	__be16 src[2];
	__be16 dst[2];
	__be16 tcp_sum; /* anything */
	__be16 tag[4];
};
_Static_assert(sizeof(struct weir_feedback) == 26, "wire expects 26");

/* What all meters go by. One entry; written by the agent only. */
struct weir_eyeq_settings {
	__u64 period_ns;       /* of the law; 0: nothing is metered */
	__u64 feedback_octets; /* one message for so many; 0: none */
	__u64 unit_bps;	       /* what feedback counts in; not 0 */
	__u64 most_units;      /* of the fastest link: more is no rate */
	__u32 alpha;	       /* as in struct weir_rcp_input */
	__u32 least_factor;
	__u32 queue_octets;
	__u32 via;     /* ifindex of what the host's own packets leave by; `tell` is on its egress */
	__be32 address; /* this host's */
	__u32 told_part; /* a step waits until sources of this part of all octets know the last one; 1/65536 */
};
_Static_assert(sizeof(struct weir_eyeq_settings) == 56, "eyeq/intf.rs expects 56");

/*
 * A VM has two shares and two meters: for its own tenant's senders at its slot, and for all others,
 * strangers, so many entries further on. As many as there are slots (MAX_PORTS).
 */
#define WEIR_EYEQ_STRANGERS 1024u

/* What a part of a VM may receive. Written by the agent only. */
struct weir_eyeq_share {
	__u64 capacity_bps; /* C_i; 0: its meter stands still */
	__u64 floor_bps;    /* R is not below */
};
_Static_assert(sizeof(struct weir_eyeq_share) == 16, "eyeq/intf.rs expects 16");

/* Where a VM is. Written by the agent only. */
struct weir_eyeq_vm {
	__be32 host; /* its host's address, also if that is this host */
	__u32 slot;  /* if it is on this host: index of its share and meter */
};
_Static_assert(sizeof(struct weir_eyeq_vm) == 8, "eyeq/intf.rs expects 8");

/* A meter's counters: `RateMeter` of crates/core/src/mechanism/eyeq/rate_meter.rs (see eyeq_count.h). */
struct weir_eyeq_sums {
	__u64 octets;	/* received from other hosts, all of it */
	__u64 since_ns; /* when the running period began; 0: none did yet */
	__u64 arrived;	/* octets since then */
	__u64 segments; /* since the last step of the law */
	__u64 marked;	/* of these, marked CE */
	__u64 rate_bps; /* R */
	__u64 load;	/* y / C in the last period, in 1/65536; 0 if that made no step */
	__u64 steps;	/* of the law */
	__u64 untold;	/* octets without a message so far; at most one message's worth where all senders know R */
	__u64 sent;	/* octets since the last step */
	__u64 heard;	/* of these, from sources that were told its rate */
};
_Static_assert(sizeof(struct weir_eyeq_sums) == 88, "rate_meter.rs expects 88");

/*
 * A part's meter. Written by the kernel side under `lock`; the agent only reads it, and deletes
 * nothing: the entries are those of an array.
 */
struct weir_eyeq_meter {
	struct weir_eyeq_sums sums;
	struct bpf_spin_lock lock;
	__u32 spare;
};
_Static_assert(sizeof(struct weir_eyeq_meter) == 96, "eyeq/intf.rs expects 96");

/* A sender to a VM of this host, by the VM's meter: key of `eyeq_told`. */
struct weir_eyeq_source {
	__u32 from; /* VM */
	__u32 meter;
};
_Static_assert(sizeof(struct weir_eyeq_source) == 8, "no padding");

/* What a meter remembers of a source: `Heeder` of rate_meter.rs. The kernel side's, under the meter's lock. */
struct weir_eyeq_heeder {
	__u64 round;   /* the step of which the rest is */
	__u64 octets;  /* sent since that step */
	__u64 is_told; /* its rate */
};
_Static_assert(sizeof(struct weir_eyeq_heeder) == 24, "rate_meter.rs expects 24");

/*
 * Whom to tell: by the host's address. Made by the agent, whole, when the key
 * is new; then the kernel side counts `sequence`, by atomic addition.
 */
struct weir_eyeq_mouth {
	__u64 key[2];
	__u64 sequence; /* the last one; 0 in the beginning */
	__u32 key_id;
	__u32 spare;
};
_Static_assert(sizeof(struct weir_eyeq_mouth) == 32, "eyeq/intf.rs expects 32");

/* Whom to believe: key of `eyeq_ears`. */
struct weir_eyeq_voice {
	__be32 address;
	__u32 key_id;
};
_Static_assert(sizeof(struct weir_eyeq_voice) == 8, "eyeq/intf.rs expects 8");

/*
 * And what was heard by that key. Made by the agent, whole (`newest` 0, `seen`
 * 1), when the key is new; then the kernel side writes under `lock`.
 */
struct weir_eyeq_ear {
	__u64 key[2];
	__u64 newest; /* sequence */
	__u64 seen;   /* bit i: newest - i was heard */
	struct bpf_spin_lock lock;
	__u32 spare;
};
_Static_assert(sizeof(struct weir_eyeq_ear) == 40, "eyeq/intf.rs expects 40");

/*
 * What a receiver allows a pair that sends from here. Made and written by the
 * kernel side under `lock`; the agent reads and deletes.
 */
struct weir_eyeq_limit {
	__u64 rate_bps;
	__u64 heard_ns; /* when it was told */
	__u64 sequence; /* with which */
	__u64 told;	/* how often */
	__u64 rung_bps; /* the rate when the agent was last woken for it */
	__u32 by;	/* a part of the key to which the sequence belongs */
	struct bpf_spin_lock lock;
};
_Static_assert(sizeof(struct weir_eyeq_limit) == 48, "eyeq/intf.rs expects 48");

/*
 * What gather says of a limit: a copy, with nothing in the place of the lock (see
 * eyeq_gather.bpf.c). Written by the kernel side while the agent waits.
 */
struct weir_eyeq_told_limit {
	__u64 is_there; /* 0: the pair has none, and the rest is old */
	__u64 rate_bps;
	__u64 heard_ns;
	__u64 sequence;
	__u64 told;
	__u64 rung_bps;
	__u32 by;
	__u32 lock;
};
_Static_assert(sizeof(struct weir_eyeq_told_limit) == 8 + sizeof(struct weir_eyeq_limit),
	       "a copy of it");

/*
 * One entry. Written by the kernel side on every CPU by atomic addition; the
 * agent only reads it.
 */
struct weir_eyeq_counters {
	/* Receiving. */
	__u64 sampled;	/* messages begun: the frame was cloned */
	__u64 uncloned; /* the kernel had no memory, or the device was down */
	__u64 told;	/* messages that left */
	__u64 unknown;	/* clones dropped: the sending VM's host is not known, or not confirmed */
	__u64 unfit;	/* clones dropped: not to be made into a message */
	/* Sending. All but the first were dropped; so was the first, once read. */
	__u64 heard;	  /* believed, and written */
	__u64 malformed;  /* not of this form or version */
	__u64 strangers;  /* no such key of that host, or not its VM */
	__u64 forged;	  /* not tagged with the key it names */
	__u64 replayed;	  /* heard before, or too old to tell */
	__u64 impossible; /* no rate, or above every link */
	__u64 strayed;	  /* of a pair in which nothing is sent from here */
	__u64 late;	  /* overtaken by newer feedback of its pair */
	__u64 full;	  /* no room for another limit */
	/* Both. */
	__u64 unrung; /* the ring was full: the agent sees it at its next look */
};
_Static_assert(sizeof(struct weir_eyeq_counters) == 120, "eyeq/intf.rs expects 120");

#endif
