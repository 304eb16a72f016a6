/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A port's window budget: the class of a connection, and the window that each
 * connection of a class may have. The same in Rust:
 * crates/dataplane/src/vcc/budget.rs.
 *
 * The loader counts and divides: it reads the port's table some times a second,
 * and writes `share`. So the shares follow the table, whatever became of
 * connections: ended, pushed out, silent. The programs read shares, and report
 * when it is time to count: `vcc_turns` grows whenever a connection begins or
 * ends to use the budget. While no loader runs, shares stay as they are.
 *
 * Needs vcc_law.h.
 */
#ifndef WEIR_VCC_BUDGET_H
#define WEIR_VCC_BUDGET_H

#define WEIR_VCC_CLASSES 16
/*
 * A connection that is silent for this many 1024 ticks (64 s) does not use the
 * budget until it sends.
 */
#define WEIR_VCC_QUIET 60
#define WEIR_VCC_ANY_SHARE (~0u)

/* Connections of one class: those with both ports in these ranges. Written by the loader. */
struct weir_vcc_class {
	__u16 local_first; /* ports of the guest's */
	__u16 local_last;
	__u16 remote_first; /* ports of the peer's */
	__u16 remote_last;
	__u32 share; /* octets of window for each connection */
};
_Static_assert(sizeof(struct weir_vcc_class) == 12, "vcc/budget.rs expects 12");

/* No connection is of two classes. */
struct weir_vcc_budget {
	__u32 classes; /* so many */
	struct weir_vcc_class class[WEIR_VCC_CLASSES];
};
_Static_assert(sizeof(struct weir_vcc_budget) == 196, "vcc/budget.rs expects 196");

/*
 * slot -> budget, where the port has one. Replaced as a whole while programs
 * read it. Size: loader.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct weir_vcc_budget);
} vcc_budgets SEC(".maps");

/*
 * slot -> 1 where vcc_budgets has it, else 0, so that no program looks up what
 * is not there, which would cost more than the law. Written by the loader.
 * Size: loader.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} vcc_bounded SEC(".maps");

/* slot -> number of times that a connection began or ended to use the budget. Size: loader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} vcc_turns SEC(".maps");

static __always_inline int vcc_is_of(const struct weir_vcc_class *class,
				     const struct weir_flow *name)
{
	__u32 remote = bpf_ntohs(name->src_port), local = bpf_ntohs(name->dst_port);

	return remote >= class->remote_first && remote <= class->remote_last &&
	       local >= class->local_first && local <= class->local_last;
}

/*
 * What a connection may have. A function of its own, which the verifier looks at
 * once; it knows nothing of the callers there.
 */
__attribute__((noinline)) __u32 vcc_share(const struct weir_vcc_budget *budget,
					  const struct weir_flow *name)
{
	if (!budget || !name)
		return WEIR_VCC_ANY_SHARE;
	for (__u32 n = 0; n < WEIR_VCC_CLASSES; n++) {
		if (n >= budget->classes)
			break;
		if (vcc_is_of(&budget->class[n], name))
			return budget->class[n].share;
	}
	return WEIR_VCC_ANY_SHARE;
}

/*
 * Whether a connection lives on what bounds it: it is open, not over, and was heard of
 * lately. Without a branch: the verifier would look at the law once for each way
 * here. The empty instructions keep the compiler from making one of a sign.
 */
static __always_inline __u32 vcc_lives(const struct weir_vcc_flow *flow, __u32 at)
{
	__u16 silent = (__u16)(at >> 10) - flow->seen;
	__s32 opened = flow->phase - VCC_OPEN;
	__s32 over = ((flow->flags & VCC_OVER) ^ VCC_OVER) - 1;
	__s32 heard = WEIR_VCC_QUIET - 1 - silent;

	asm volatile("" : "+r"(opened), "+r"(over), "+r"(heard));
	return ~(__u32)(opened | over | heard) >> 31;
}

static __always_inline void vcc_turn(__u32 slot)
{
	__u64 *turns = bpf_map_lookup_elem(&vcc_turns, &slot);

	if (turns)
		__sync_fetch_and_add(turns, 1);
}

#endif
