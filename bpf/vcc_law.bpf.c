// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * vCC's law by itself: see law_test.h. A run changes the flow that its input names, and
 * writes what became of both.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "vcc_law.h"

#define FLOWS 256

struct vcc_input {
	struct weir_vcc_segment segment;
	struct weir_vcc_terms terms;
	__u32 flow;
	__u32 spare;
};
_Static_assert(sizeof(struct vcc_input) == 56, "vcc_law.rs expects 56");

struct vcc_output {
	struct weir_vcc_edit edit;
	struct weir_vcc_flow flow;
};
_Static_assert(sizeof(struct vcc_output) == 80, "vcc_law.rs expects 80");

#define LAW_INPUT struct vcc_input
#define LAW_OUTPUT struct vcc_output
#include "law_test.h"

/* All zeros when the object is loaded: nothing was seen of any. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOWS);
	__type(key, __u32);
	__type(value, struct weir_vcc_flow);
} law_flows SEC(".maps");

SEC("tc")
int vcc_law(struct __sk_buff *skb)
{
	struct vcc_output *output;
	struct vcc_input *input;
	__u32 *next = law_take(&input, &output), which;
	struct weir_vcc_flow *flow;

	(void)skb;
	if (!next)
		return TC_ACT_SHOT;
	which = input->flow;
	flow = bpf_map_lookup_elem(&law_flows, &which);
	if (!flow)
		return TC_ACT_SHOT;
	vcc_handle(flow, &input->segment, &input->terms, &output->edit);
	output->flow = *flow;
	*next += 1;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
