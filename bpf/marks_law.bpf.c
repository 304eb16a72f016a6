// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The law of marks that guests need not see, by itself: see law_test.h. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"
#include "clock.h"
#include "marks.h"

struct law_input {
	struct weir_spared spared;
	__u64 now;
	__u64 octets;
	__u64 offer_bps;
};
_Static_assert(sizeof(struct law_input) == 40, "marks_law.rs expects 40");

struct law_output {
	struct weir_spared spared;
	__u64 is_off;
};

#define LAW_INPUT struct law_input
#define LAW_OUTPUT struct law_output
#include "law_test.h"

SEC("tc")
int marks_law(struct __sk_buff *skb)
{
	struct law_output *output;
	struct law_input *input;
	__u32 *next = law_take(&input, &output);

	(void)skb;
	if (!next)
		return TC_ACT_SHOT;
	output->spared = input->spared;
	output->is_off = spares_mark(&output->spared, input->now, input->octets, input->offer_bps);
	*next += 1;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
