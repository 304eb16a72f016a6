// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* EyeQ's law by itself: see law_test.h. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "eyeq_law.h"

#define LAW_INPUT struct weir_rcp_input
#define LAW_OUTPUT struct weir_rcp_output
#include "law_test.h"

SEC("tc")
int eyeq_law(struct __sk_buff *skb)
{
	struct weir_rcp_output *output;
	struct weir_rcp_input *input;
	__u32 *next = law_take(&input, &output);

	(void)skb;
	if (!next)
		return TC_ACT_SHOT;
	rcp_step(input, output);
	*next += 1;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
