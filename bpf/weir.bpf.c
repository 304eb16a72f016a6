/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Weir's datapath: three programs, one object, one file per concern. Two more
 * programs, which no packet meets, let the agent read (see gather.bpf.c).
 *
 *   VM -> port -> [classify] -> redirect -> IFB with the shaper -> bridge
 *                                                         |
 *   VM <- port <- [meter] <- bridge <- uplink      uplink <- [stamp]
 *
 * The programs choose the class of a packet, count and number packets, and find
 * gaps and marks. They never delay a packet. A queue in the shaper does that,
 * because a program that drops is no limiter for TCP. classify drops only what
 * that queue would hold for too long (see backlog.h), and what has no queue and
 * nothing to slow it down (see stray.h). With departure times there is no IFB:
 * stamp computes when a packet may leave (see depart.bpf.c), and the uplink's
 * fq qdisc holds it until then.
 *
 * They pass with TC_ACT_UNSPEC (the same number as TCX_NEXT), so that foreign
 * programs behind them run, too. They drop only forged and malformed packets.
 * They run wherever clsact does: no helper or map here is younger than Linux
 * 5.16.
 *
 * The files are compiled as one, because they share maps.
 */
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"
#include "maps.h"
#include "parse.h"
#include "endpoints.h"
#include "clock.h"
#include "stray.h"
#include "lease.h"
#include "tcp.h"
#include "backlog.h"
#include "ecn.h"
#include "dscp.h"
#include "sequence.h"
#include "timed.h"
#include "marks.h"

#include "classify.bpf.c"
#include "depart.bpf.c"
#include "uplink.h"
#include "stamp.bpf.c"
#include "meter.bpf.c"
#include "gather.bpf.c"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
