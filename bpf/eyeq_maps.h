/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The maps of EyeQ's programs, beside those of maps.h, which they read:
 * `ports`, `endpoints`, `outside` and `tx`. All are bounded. Maps to which only
 * the agent adds are not preallocated, so that the memory of a replaced entry
 * is not used again while a program still holds it.
 */
#ifndef WEIR_EYEQ_MAPS_H
#define WEIR_EYEQ_MAPS_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_eyeq_settings);
} eyeq_settings SEC(".maps");

/* slot -> what the VM may receive. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct weir_eyeq_share);
} eyeq_shares SEC(".maps");

/* slot -> meter. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct weir_eyeq_meter);
} eyeq_meters SEC(".maps");

/*
 * source -> `steps` of its receiver's meter at its last message. Only the
 * kernel side uses it. A source that other entries pushed out gets one more
 * message. Size: agent.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct weir_eyeq_source);
	__type(value, __u64);
} eyeq_told SEC(".maps");

/* VM -> where it is. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct weir_eyeq_vm);
} eyeq_vms SEC(".maps");

/* host's address -> how to speak to it. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __be32);
	__type(value, struct weir_eyeq_mouth);
} eyeq_mouths SEC(".maps");

/* host's address and key -> what was heard. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct weir_eyeq_voice);
	__type(value, struct weir_eyeq_ear);
} eyeq_ears SEC(".maps");

/* pair -> what its receiver allows. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct weir_pair);
	__type(value, struct weir_eyeq_limit);
} eyeq_limits SEC(".maps");

/* Of which pairs gather is to tell the limit. Written by the agent only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WEIR_ASKED);
	__type(key, __u32);
	__type(value, struct weir_pair);
} eyeq_asked SEC(".maps");

/* Position in `eyeq_asked` -> what gather says of that limit. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WEIR_ASKED);
	__type(key, __u32);
	__type(value, struct weir_eyeq_told_limit);
} eyeq_told_limits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_eyeq_counters);
} eyeq_counters SEC(".maps");

#endif
