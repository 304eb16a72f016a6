/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the datapath in the kernel and the agent share. Mirrored by
 * crates/dataplane/src/intf.rs; sizes are asserted on both sides.
 *
 * Every map has one writer, named at its struct. The only exceptions are
 * deletions: the agent may delete an entry of a map that the kernel fills.
 * Integers are in host order, addresses in network order.
 */
#ifndef WEIR_INTF_H
#define WEIR_INTF_H

/* Endpoint flags. */
#define WEIR_LOCAL 1u	    /* the VM is on this host */
#define WEIR_BEST_EFFORT 2u /* it is, and what it sends waits for all others (EyeQ §3.5) */
#define WEIR_AT_MAC 4u	    /* VMs reach it at `mac` and nowhere else: they share a bridge */

/* Port flags. */
#define WEIR_OUTWARD 1u	  /* leads out of the cloud: behind it is whatever `outside` says */
#define WEIR_FIXED_MAC 2u /* only `mac` may send here */
#define WEIR_BARE 16u	  /* what passes may miss the shaper (see lease.h) */
#define WEIR_KEEP_DSCP 32u    /* its guest's code points stay where no tag takes their place (see dscp.h) */
#define WEIR_RESTORE_DSCP 64u /* the same, and TCP connections get theirs back at their receiver */

/* Settings flags. */
#define WEIR_ECN 1u /* marks are a signal: what leaves is ECN-capable */
#define WEIR_UNMARK 2u /* marks are counted, so VMs' own are taken off; so they are with WEIR_ECN */
#define WEIR_OBSERVE 16u /* count, and change or drop nothing */

/*
 * How many segments behind the newest a missing one may still come; a power of two. A pair of
 * 49 Gbit/s sends so many full frames in 1 ms, the usual `reorder_ns`; a faster one has less time. Each
 * pair that receives here has a bit for each of them: half a kilobyte.
 */
#define WEIR_WINDOW 4096u

/* Event directions. */
#define WEIR_TX 0u /* a VM of this host began to send */
#define WEIR_RX 1u /* a VM of this host began to receive */
#define WEIR_LIMIT 2u /* a receiver allows a pair that sends from here another rate (see eyeq.h) */

/* All traffic from one VM to another. Key of `tx`, `rx` and `classes`. */
struct weir_pair {
	__u32 src;
	__u32 dst;
};
_Static_assert(sizeof(struct weir_pair) == 8, "intf.rs expects 8");

/* An address: IPv6, or IPv4 as ::ffff:a.b.c.d. Key of `endpoints`. */
struct weir_address {
	__u32 words[4];
};
_Static_assert(sizeof(struct weir_address) == 16, "intf.rs expects 16");

/* Whose address it is. Written by the agent only. */
struct weir_endpoint {
	__u32 vm;
	__u32 tenant;
	__u32 flags; /* WEIR_LOCAL, WEIR_BEST_EFFORT, WEIR_AT_MAC */
	__u16 mac[4]; /* six octets in network order and two of nothing */
	__u32 host; /* index of its host's row in `timed` */
};
_Static_assert(sizeof(struct weir_endpoint) == 24, "intf.rs expects 24");

/*
 * A range of addresses outside the cloud, as one tenant sees it. Key of
 * `outside`, an LPM trie: the first `bits` of what follows it count. The
 * family is there because ::/0 would be all of IPv4, too.
 */
struct weir_prefix {
	__u32 bits; /* 64, and the prefix's length (IPv4: and 96) */
	__u32 tenant;
	__u32 family; /* 4 or 6 */
	struct weir_address address;
};
_Static_assert(sizeof(struct weir_prefix) == 28, "intf.rs expects 28");

/*
 * The endpoint of such addresses: one endpoint of the tenant for all that is
 * outside (ElasticSwitch §3). Slot and class are those of an endpoint that is
 * on this host. Written by the agent only.
 */
struct weir_outside {
	struct weir_endpoint endpoint;
	__u32 slot;	     /* index of its row in `places` */
	__u32 default_class; /* skb->priority of what has no class of its own */
};
_Static_assert(sizeof(struct weir_outside) == 32, "intf.rs expects 32");

/*
 * Where an agent listens. Key of `controls`: once with its UDP port in network
 * order, and once with port 0, which says that this address has such a port.
 * Written by the agent only.
 */
struct weir_control {
	struct weir_address address;
	__u32 port;
};
_Static_assert(sizeof(struct weir_control) == 20, "intf.rs expects 20");

/*
 * A VM's port, by ifindex. Written by the agent only. Several endpoints may
 * share a port that leads outside: then VM, tenant, classes, counters and the rate of strays are
 * those of the first of them, and serve what is of no pair.
 */
struct weir_port {
	__u32 vm;
	__u32 tenant;
	__u32 slot;	     /* index of its rows in `port_counters` and `places` */
	__u32 default_class; /* skb->priority of what has no class of its own */
	__u32 control_class; /* skb->priority of ARP, neighbour discovery and DHCP requests */
	__u32 external_class; /* skb->priority of what goes to addresses that no directory lists */
	__u32 flags;	     /* WEIR_OUTWARD, WEIR_FIXED_MAC, WEIR_BARE, WEIR_KEEP_DSCP, WEIR_RESTORE_DSCP */
	__u32 max_pairs;     /* places in `tx`, and as many in `rx` */
	__u32 stray_bps;     /* what its pairs without a class may send, bit/s (see stray.h) */
	__u32 moment;	     /* octets that they may send ahead while they wait for one; 0: no bound */
	__u16 mac[4];	     /* six octets in network order and two of nothing */
};
_Static_assert(sizeof(struct weir_port) == 48, "intf.rs expects 48");

/*
 * Entries in `tx` and `rx` that belong to one VM, by slot. The kernel side
 * adds what it makes, by atomic addition; the agent writes what is gone, which
 * it knows because it reads the tables. What a VM has is the difference.
 */
struct weir_places {
	__u64 tx_made;
	__u64 rx_made;
	__u64 tx_gone; /* by the agent */
	__u64 rx_gone; /* by the agent */
	__u64 stray_ns; /* when what its pairs without a class sent would have left (see stray.h) */
	__u64 moment_ns; /* the same of what they sent while they waited for one */
};
_Static_assert(sizeof(struct weir_places) == 48, "intf.rs expects 48");

/* What all programs go by. Written by the agent only, before they are attached. */
struct weir_settings {
	__u64 reorder_ns; /* a gap that stays open for so long is a loss */
	__u32 flags;	  /* WEIR_ECN, WEIR_UNMARK, WEIR_OBSERVE */
	__u32 overhead;	  /* octets that a tunnel behind the ports adds to a packet; 0: there is none */
	__u64 code_points; /* bit n: Weir may tag a tenant with DSCP n; 0: it tags none */
	__u32 divided;	   /* ifindex of the uplink that HTB divides between VMs and host; 0: none is */
	__u32 timed_us;	   /* one packet to each host in this time carries its departure time; 0: none does */
};
_Static_assert(sizeof(struct weir_settings) == 32, "intf.rs expects 32");

/*
 * Leaves of that HTB (see uplink.h). Their low four bits are zero: a queue behind this host that
 * reads skb->priority as a band finds best effort.
 */
#define WEIR_UPLINK_VMS 0x3e10010u    /* what VMs send; HTB has shaped it already */
#define WEIR_UPLINK_HOST 0x3e10020u   /* what the host itself sends, and whatever has no class */
#define WEIR_UPLINK_URGENT 0x3e10030u /* the host's neighbour discovery, and agents' messages */

/*
 * A TCP connection in the direction in which its packets come in. Key of `flows`
 * (its ends agreed on ECN) and of `dscps`. Written by the kernel side.
 */
struct weir_flow {
	struct weir_address src;
	struct weir_address dst;
	__be16 src_port;
	__be16 dst_port;
};
_Static_assert(sizeof(struct weir_flow) == 36, "intf.rs expects 36");

/*
 * What a port saw. Written by the kernel side on every CPU by atomic
 * addition; the agent only reads it. Octets are those of layer 2 without FCS
 * as they are on the wire, with the headers of every segment of a
 * super-packet. Dropped packets are in their own counter only; but what a queue
 * of the shaper drops was passed on to it, wherever it is dropped.
 */
struct weir_port_counters {
	__u64 tx_octets;    /* from the VM, passed on */
	__u64 tx_segments;  /* the same in segments */
	__u64 rx_octets;    /* to the VM, all of it */
	__u64 rx_segments;  /* the same in segments */
	__u64 spoofed;	    /* dropped: the source is not the VM's; packets */
	__u64 malformed;    /* dropped: truncated or not what it says; packets */
	__u64 unclassified; /* to the default class, of no pair and to no place; packets */
	__u64 control;	    /* to the control class; packets */
	__u64 foreign;	    /* to the VM, of no pair and not from outside; packets */
	__u64 tx_full;	    /* no room for a new sending pair; packets */
	__u64 rx_full;	    /* no room for a new receiving pair; packets */
	__u64 events_lost;  /* the ring was full; the pair is told again */
	__u64 spoofed_mac;  /* dropped: not from the VM's own MAC address; packets */
	__u64 control_denied; /* dropped: to an agent, or a part of it; packets */
	__u64 stray;	      /* dropped: of pairs without a class, beyond their rate; packets */
	__u64 unpaired;	      /* dropped: of no pair and to no place, beyond that rate; packets */
	__u64 rogue;	      /* dropped: speaks for a router or a DHCP server; packets */
	__u64 misdirected;    /* dropped: to a VM's address at a hardware address not its own; packets */
	__u64 external_tx;    /* to the external class; octets */
	__u64 external_rx;    /* to the VM, from addresses that no directory lists; octets */
	__u64 unleased;	      /* dropped: beyond its pair's floor, while no agent renews the lease; segments */
};
_Static_assert(sizeof(struct weir_port_counters) == 168, "intf.rs expects 128");

/* Flows of a pair are told apart by so many parts of its queue (see backlog_law.h). */
#define WEIR_PARTS 16

/*
 * What waits in a pair's queue in HTB, as far as classify knows. Written by it,
 * under the pair's lock.
 */
struct weir_backlog {
	__u64 seen_ns;	 /* what has drained by then is taken off; or when something last left */
	__u64 data_moved_ns; /* when the data was last gone or seen to move */
	__u64 acks_moved_ns;
	__u64 bps;	 /* what drains in any case since then; 0: nothing waits */
	__u64 since_ns;	 /* since when `passed` octets have left */
	__u64 rate;	 /* bit/s at which it drained before that; 0: not known */
	__u64 acks_bps;	 /* at which acknowledgements are taken from their flows while data waits */
	__u64 acks_seen_ns; /* up to when they were */
	__u32 passed;
	__u32 left;	 /* what the last packet was told of `left` of the pair */
	__u32 data_in;	 /* octets let in ever */
	__u32 acks_in;
	__u32 data[WEIR_PARTS];	 /* octets that wait, by flows */
	__u32 acks[WEIR_PARTS];	 /* the same of acknowledgements, which wait beside the data */
	__u32 data_waits;	 /* their sums, less what is owed */
	__u32 acks_wait;
	__u32 data_owed; /* has drained and was not taken from a flow yet */
	__u32 acks_owed;
};
_Static_assert(sizeof(struct weir_backlog) == 224, "core/src/backlog.rs expects 224");

/*
 * A pair whose source is here. Created and written by the kernel side, by
 * atomic addition; the agent reads and deletes. The class is not here but in
 * `classes`, which the agent alone writes: an update from user space replaces
 * a whole value, and would take back what was counted meanwhile.
 */
struct weir_tx {
	__u64 octets;	/* on the wire, before the shaper */
	__u64 acks;	/* of these, TCP segments that only acknowledge */
	__u64 segments; /* how many segments all are */
	__u64 told_ns;	/* when the agent was last told; moved by compare-and-swap */
	__u32 sequence; /* segments stamped, after the shaper; by `stamp` */
	struct bpf_spin_lock lock; /* of `dropped` and `backlog` */
	__u64 numbered;	  /* octets that left with a number; by `stamp` */
	__u64 unnumbered; /* octets that left without: IPv6, fragments; by `stamp` */
	__u64 dropped;	  /* segments that its queue in HTB was too long for (see backlog.h) */
	__u64 stray_ns;	  /* since when it sends without a class; 0: it has one */
	__u16 data_left;  /* marks of the last packets that left (see backlog.h); by `stamp` */
	__u16 acks_left;
	__u32 untimed; /* the packet with this number carries it: the last one, or none, was timed; by `stamp` */
	struct weir_backlog backlog;
};
_Static_assert(sizeof(struct weir_tx) == 304, "intf.rs expects 304");

/* Which marks of a pair its guest need not see (see marks.h). Written under the pair's lock. */
struct weir_spared {
	__u64 due_ns; /* by when its offer would have carried what arrived */
	__u64 octets; /* what had arrived at the last marked packet */
};
_Static_assert(sizeof(struct weir_spared) == 16, "core/src/marks.rs expects 16");

/*
 * A pair whose destination is here. Created and written by the kernel side
 * under `lock`, for several CPUs may deliver to one VM, and the check of the
 * sequence is a read and a write that belong together. The agent reads and
 * deletes.
 */
struct weir_rx {
	__u64 octets;	 /* on the wire */
	__u64 segments;	 /* the same in segments */
	__u64 lost;	 /* segments missing in the sequence for longer than the window */
	__u64 ce;	 /* segments with the congestion mark */
	__u64 reordered; /* segments that came after later ones (or twice) */
	__u64 resyncs;	 /* jumps too far for the ring: the sender began anew, or all between is lost */
	__u64 strange;	 /* packets without a number: far from the sequence, which went on without them */
	__u64 missed;	 /* segments missing before and between doubtful packets */
	__u64 gap_ns;	 /* when the youngest hole appeared */
	__u64 aged_ns;	 /* all holes before `aged` had appeared by then */
	__u64 holes[WEIR_WINDOW / 64]; /* a bit per missing segment, at its number modulo WINDOW */
	__u32 missing;	 /* how many bits are set */
	__u32 aged;	 /* an identification, 16 bits */
	__u32 expected;	 /* the next identification, 16 bits */
	__u32 synced;	 /* 0: `expected` is unknown; else 1 + its way since then, at most WEIR_WINDOW + 1 */
	struct bpf_spin_lock lock;
	__u32 numbered;	 /* segments that had a number, or seemed to; wraps around */
	__u32 doubts;	 /* packets far from the sequence since it last went on */
	__u32 doubt;	 /* the identification after the last of them, 16 bits */
	__u32 ahead;	 /* segments of timed packets that may have overtaken numbered ones */
	__u32 owed;	 /* holes that are no losses, for timed packets had these numbers */
	struct weir_spared spared;
};
_Static_assert(sizeof(struct weir_rx) == 648, "intf.rs expects 648");

/* Timed packets to and from another host (see timed.h). */
struct weir_timed {
	__u64 left_ns;	/* when the last one left; moved by compare-and-swap */
	__u64 least[2]; /* window -> the least delayed that came: microseconds << 16 | its time; 0: none */
};
_Static_assert(sizeof(struct weir_timed) == 24, "intf.rs expects 24");

/* Pairs that are asked for in one run of gather (see gather.bpf.c). */
#define WEIR_ASKED 1024u

/*
 * What gather says of a pair: a copy of its `weir_tx`, of `weir_rx`, with nothing
 * in the place of the lock and of `spared`. Written by the kernel side while the agent waits.
 */
struct weir_told_tx {
	__u64 is_there; /* 0: there is no such pair, and the rest is old */
	__u64 octets;
	__u64 acks;
	__u64 segments;
	__u64 told_ns;
	__u32 sequence;
	__u32 lock;
	__u64 numbered;
	__u64 unnumbered;
	__u64 dropped;
	__u64 stray_ns;
	__u16 data_left;
	__u16 acks_left;
	__u32 reserved;
	struct weir_backlog backlog;
};
_Static_assert(sizeof(struct weir_told_tx) == 8 + sizeof(struct weir_tx), "a copy of it");

struct weir_told_rx {
	__u64 is_there;
	__u64 octets;
	__u64 segments;
	__u64 lost;
	__u64 ce;
	__u64 reordered;
	__u64 resyncs;
	__u64 strange;
	__u64 missed;
	__u64 gap_ns;
	__u64 aged_ns;
	__u64 holes[WEIR_WINDOW / 64]; /* told while something is missing */
	__u32 missing;
	__u32 aged;
	__u32 expected;
	__u32 synced;
	__u32 lock;
	__u32 numbered;
	__u32 doubts;
	__u32 doubt;
	__u32 ahead;
	__u32 owed;
	struct weir_spared spared;
};
_Static_assert(sizeof(struct weir_told_rx) == 8 + sizeof(struct weir_rx), "a copy of it");

/* Told to the agent through the ring `events`. Written by the kernel side. */
struct weir_event {
	struct weir_pair pair;
	__u32 direction;   /* WEIR_TX, WEIR_RX or WEIR_LIMIT */
	__u32 same_tenant; /* 0: the two VMs share no hose */
};
_Static_assert(sizeof(struct weir_event) == 16, "intf.rs expects 16");

/*
 * Departure times (see depart.bpf.c). A node is named by the low half of a
 * class: 1 the uplink, 2 what has no class, 3 the host itself, 1024.. VMs, 2048.. and 3072.. their
 * default and control queues, 4096.. pairs, 8192.. VMs' external queues.
 *
 * In HTB only pairs have levels (see backlog.h and lease.h), and of them only
 * `floor`, `ceiling`, `limit_ns`, `limit` and `ahead`. Their nodes are the same; their classes
 * begin at WEIR_HTB_PAIRS.
 */
#define WEIR_NODES 9216
#define WEIR_PAIRS 4096u
#define WEIR_HTB_PAIRS 0x4000u

/*
 * What a node may send, in bit/s on layer 2 without FCS. Written by the agent,
 * a pair's ceiling also by heed.
 */
struct weir_level {
	__u64 floor;	/* what it gets in any case */
	__u64 ceiling;	/* what it may use; 0: there is no such node */
	__u64 fallback; /* the ceiling when the agent has not renewed its lease */
	__u64 limit_ns; /* longest wait in a leaf; how far ahead an inner node lends */
	__u64 limit;	/* of a leaf: octets that may wait */
	__u64 parent;	/* the node that lends */
	__u64 ahead;	/* of a pair in HTB: octets that it may send ahead of its ceiling */
};
_Static_assert(sizeof(struct weir_level) == 56, "intf.rs expects 56");

/* A leaf. Written by the kernel side under `lock`; the agent only reads it. */
struct weir_queue {
	__u64 departs_ns; /* when the last packet leaves */
	__u64 floor_ns;	  /* when the last one that used the floor was due by it */
	__u64 octets;	  /* taken */
	__u64 segments;	  /* the same in segments */
	__u64 dropped;	  /* segments that found it full */
	__u64 seen_ns;	  /* when the last packet came */
	__u32 backlog;	  /* octets that waited then, with it */
	__u32 last;	  /* octets of the last packet */
	__u32 floor_last; /* octets of the last one that used the floor */
	struct bpf_spin_lock lock;
};
_Static_assert(sizeof(struct weir_queue) == 64, "intf.rs expects 64");

#endif
