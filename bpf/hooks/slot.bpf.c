/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Not hooks: what the agent asks of a slot's state. `states` is written by verdicts all the time;
 * a write of the whole value from user space would undo some. */
#include "bpf/lib/label.h"
#include "bpf/wire/slot_call.h"

SEC("syscall")
int slot_call(struct sk_slot_call *call) {
    __u32 slot = call->slot;
    struct sk_slot *entry = bpf_map_lookup_elem(&slots, &slot);
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    if (!entry || !state || entry->generation != call->generation || entry->state == SK_SLOT_FREE) return -1;
    if (call->op == SK_SLOT_CONDEMN) condemn(slot, call->argument);
    if (call->op == SK_SLOT_ADD_TASKS) __sync_fetch_and_add(&state->tasks, call->argument);
    return 0;
}
