/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Runs a law by itself, for the test that holds it equal to Rust's, in an
 * object that only the test loads. A run takes the next input and writes its
 * output. A test that repeats the run once per input gets all outputs in one
 * call.
 *
 * Define LAW_INPUT and LAW_OUTPUT, the types of both, before this.
 */
#ifndef WEIR_LAW_TEST_H
#define WEIR_LAW_TEST_H

#include <linux/pkt_cls.h>

/* How many inputs one call takes at most. */
#define STEPS 65536

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STEPS);
	__type(key, __u32);
	__type(value, LAW_INPUT);
} law_inputs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STEPS);
	__type(key, __u32);
	__type(value, LAW_OUTPUT);
} law_outputs SEC(".maps");

/* Entry 0: the next input. Set to 0 by the test before a call. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} law_next SEC(".maps");

/* The place of the next input, to be moved on when it is done; nothing if there is none. */
static __always_inline __u32 *law_take(LAW_INPUT **input, LAW_OUTPUT **output)
{
	__u32 zero = 0, at, *next = bpf_map_lookup_elem(&law_next, &zero);

	if (!next)
		return 0;
	at = *next;
	*input = bpf_map_lookup_elem(&law_inputs, &at);
	*output = bpf_map_lookup_elem(&law_outputs, &at);
	return *input && *output ? next : 0;
}

#endif
