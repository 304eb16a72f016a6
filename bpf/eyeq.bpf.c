// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * EyeQ in the kernel: three programs, an object of their own, one file per
 * concern, and one that only the agent runs (eyeq_gather.bpf.c). The reasons:
 * docs/algorithms/eyeq.md, "In the kernel".
 *
 *   VM <- port <- [meter] <- bridge <- uplink <- network
 *                    |
 *                  clone -> [tell] -> host's own interface -> network
 *
 *   network -> uplink -> [heed] -> a limit, by which the agent sets HTB's
 *   classes
 *
 * meter computes the receiver's rate when packets come, and sends it to one of
 * the senders for every 10 kB, at most once per sender and step of the rate. The frame
 * that fills the 10 kB is cloned, and the clone becomes a message of 60 octets
 * to the sender's host. There heed reads it, stores the limit, and drops it. No
 * agent is awake for any of that, and no VM ever sees it. The agent is woken
 * when a limit has changed by more than a little, and when a VM begins to
 * receive.
 *
 * They pass with TC_ACT_UNSPEC, as the programs of weir.bpf.c do. Their maps of
 * the directory, of ports and of pairs have the same names and layouts as
 * there: a loader of both objects gives one the maps of the other.
 */
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"
#include "maps.h"
#include "parse.h"
#include "endpoints.h"
#include "tcp.h"
#include "dscp.h"
#include "eyeq_law.h"
#include "siphash.h"
#include "eyeq.h"
#include "eyeq_count.h"
#include "eyeq_maps.h"

/*
 * skb->mark of a clone on its way from `meter` to `tell`: a random number that
 * nothing else uses.
 */
#define CLONE_MARK 0x9e1be9c5u

#define COUNT(counters, what) __sync_fetch_and_add(&(counters)->what, 1)

static __always_inline struct weir_eyeq_settings *eyeq_settings_now(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&eyeq_settings, &zero);
}

static __always_inline struct weir_eyeq_counters *eyeq_counters_now(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&eyeq_counters, &zero);
}

/*
 * Wakes the agent by the ring that classify uses, too. If the event is lost,
 * the agent sees the same at its next look: late, not lost.
 */
static __always_inline void ring(__u32 src, __u32 dst, __u32 what)
{
	struct weir_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	struct weir_eyeq_counters *counters;

	if (!event) {
		counters = eyeq_counters_now();
		if (counters)
			COUNT(counters, unrung);
		return;
	}
	event->pair.src = src;
	event->pair.dst = dst;
	event->direction = what;
	event->same_tenant = 1;
	bpf_ringbuf_submit(event, 0);
}

/* Which of the meters of the VM in `slot` a packet from another host counts at. */
static __always_inline __u32 meter_of(const struct ends *ends, __u32 slot)
{
	int is_own = !ends->outside && ends->from->tenant == ends->to->tenant;

	return is_own ? slot : slot + WEIR_EYEQ_STRANGERS;
}

#include "eyeq_meter.bpf.c"
#include "eyeq_feedback.h"
#include "eyeq_tell.bpf.c"
#include "eyeq_heed.bpf.c"
#include "eyeq_gather.bpf.c"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
