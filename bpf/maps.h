/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The maps. All are bounded, and those that the kernel side fills are
 * preallocated: nothing a VM sends makes the kernel allocate. Sizes marked
 * "agent" are set before loading.
 */
#ifndef WEIR_MAPS_H
#define WEIR_MAPS_H

#define NODES 1 /* of what is indexed by nodes; the agent makes it WEIR_NODES where it needs them */

/* ifindex -> port. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct weir_port);
} ports SEC(".maps");

/* slot -> counters. An array, so that the agent can map it. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct weir_port_counters);
} port_counters SEC(".maps");

/* address -> VM: the directory. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 1024);
	__type(key, struct weir_address);
	__type(value, struct weir_endpoint);
} endpoints SEC(".maps");

/* prefix -> endpoint that stands for it, outside. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_RDONLY_PROG);
	__uint(max_entries, 1024);
	__type(key, struct weir_prefix);
	__type(value, struct weir_outside);
} outside SEC(".maps");

/* Where agents listen; the value says nothing. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 1024);
	__type(key, struct weir_control);
	__type(value, __u32);
} controls SEC(".maps");

/* slot -> places taken in `tx` and `rx`. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct weir_places);
} places SEC(".maps");

/* Pairs that send from here. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct weir_pair);
	__type(value, struct weir_tx);
} tx SEC(".maps");

/* Pairs that receive here. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct weir_pair);
	__type(value, struct weir_rx);
} rx SEC(".maps");

/* pair -> skb->priority. Written by the agent only. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 1024);
	__type(key, struct weir_pair);
	__type(value, __u32);
} classes SEC(".maps");

/*
 * pair that shows marks -> what its receiver offers it, bit/s, where guests answer
 * marks. Written by the agent only. Size: agent.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 1024);
	__type(key, struct weir_pair);
	__type(value, __u64);
} offers SEC(".maps");

#define UPLINK 1u /* the root of the tree of nodes; there in departure times only */

/*
 * node -> levels: of departure times, or of the pairs' classes in HTB. Written
 * by the agent; ceilings of pairs also by heed, where EyeQ meets departure
 * times. Size: agent.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, NODES);
	__type(key, __u32);
	__type(value, struct weir_level);
} levels SEC(".maps");

/* One entry. Written by the agent only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_settings);
} settings SEC(".maps");

/* Whether packets are only counted: nothing of them is changed, and none is dropped. */
static __always_inline int observes(void)
{
	__u32 zero = 0;
	struct weir_settings *all = bpf_map_lookup_elem(&settings, &zero);

	return all && all->flags & WEIR_OBSERVE;
}

/*
 * TCP connections that agreed on ECN. A VM that opens many pushes out those of
 * others: these then see Not-ECT, which any end of a connection must bear.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct weir_flow);
	__type(value, __u32);
} flows SEC(".maps");

/* weir_event, kernel to agent: 4096 of them. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 128 * 1024);
} events SEC(".maps");

/* Tells the agent of a pair. Never fails: what finds no room is counted. */
static __always_inline void tell(struct weir_pair *pair, __u32 direction, __u32 same_tenant,
				 struct weir_port_counters *counters)
{
	struct weir_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		__sync_fetch_and_add(&counters->events_lost, 1);
		return;
	}
	event->pair = *pair;
	event->direction = direction;
	event->same_tenant = same_tenant;
	bpf_ringbuf_submit(event, 0);
}

#endif
