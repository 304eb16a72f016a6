// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The law of a pair's queue by itself: see law_test.h. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"
#include "clock.h"
#include "backlog_law.h"

struct law_input {
	struct weir_backlog backlog;
	struct weir_bound bound;
	struct weir_arrival arrival;
	__u64 is_new;
};
_Static_assert(sizeof(struct law_input) == 304, "backlog_law.rs expects 304");

struct law_output {
	struct weir_backlog backlog;
	__u64 is_let_in;
};

#define LAW_INPUT struct law_input
#define LAW_OUTPUT struct law_output
#include "law_test.h"

SEC("tc")
int backlog_law(struct __sk_buff *skb)
{
	struct law_output *output;
	struct law_input *input;
	__u32 *next = law_take(&input, &output);

	(void)skb;
	if (!next)
		return TC_ACT_SHOT;
	output->backlog = input->backlog;
	output->is_let_in = backlog_admits(&output->backlog, &input->bound, &input->arrival,
					   input->is_new != 0);
	*next += 1;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
