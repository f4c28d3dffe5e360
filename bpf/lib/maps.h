/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Every map, in one place. Names are at most 15 bytes: the kernel cuts the rest. Weak, so that
 * each object that includes this header refers to the same map after linking. */
#pragma once
#include "bpf/lib/case.h"

/* The label of a task and its scratch; made at its birth, gone with it. */
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct sk_task);
} tasks SEC(".maps") __weak;

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SK_MAX_SLOTS);
    __type(key, __u32);
    __type(value, struct sk_slot);
} slots SEC(".maps") __weak;

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SK_MAX_SLOTS);
    __type(key, __u32);
    __type(value, struct sk_state);
} states SEC(".maps") __weak;

/* cgroup id -> slot, for tasks that carry no label. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, SK_MAX_SLOTS);
    __type(key, __u64);
    __type(value, __u32);
} cgroups SEC(".maps") __weak;

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct sk_config);
} config SEC(".maps") __weak;

/* Compiled policies, by size. An inner array holds one value; all in a map must be of the same shape
 * for a look-up to be no call. */
#define SK_POLICIES(name, cells)                     \
    struct sk_##name##_map {                         \
        __uint(type, BPF_MAP_TYPE_ARRAY);            \
        __uint(map_flags, BPF_F_RDONLY_PROG);        \
        __uint(max_entries, 1);                      \
        __uint(key_size, sizeof(__u32));             \
        __uint(value_size, (cells) * SK_CELL_BYTES); \
    };                                               \
    struct {                                         \
        __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);    \
        __uint(max_entries, SK_MAX_POLICIES);        \
        __type(key, __u32);                          \
        __array(values, struct sk_##name##_map);     \
    } name SEC(".maps") __weak

SK_POLICIES(policies_small, SK_POLICY_CELLS_SMALL);
SK_POLICIES(policies_medium, SK_POLICY_CELLS_MEDIUM);
SK_POLICIES(policies_large, SK_POLICY_CELLS_LARGE);

/* Three rings, so that a flood of telemetry cannot push out a violation, nor violations the end
 * of a sandbox. A refusal takes 256 bytes to 2.2 KiB: the ring of violations holds what thirty
 * sandboxes with twenty refusals a second each leave in half a minute in which no agent reads. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 20);
} lifecycle_ring SEC(".maps") __weak;
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 32 << 20);
} violation_ring SEC(".maps") __weak;
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 16 << 20);
} telemetry_ring SEC(".maps") __weak;

/* Failures by site; no failure is silent. */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, SK_ERROR_COUNT);
    __type(key, __u32);
    __type(value, __u64);
} errors SEC(".maps") __weak;

/* What `record: first` has recorded: (slot, generation, operation and path hash) -> count. An
 * evicted entry only means that the same operation is recorded once more. */
struct sk_first_key {
    __u64 path_hash;
    __u32 slot;
    __u32 generation;
};
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 65536);
    __type(key, struct sk_first_key);
    __type(value, __u64);
} firsts SEC(".maps") __weak;

/* Violations of one (slot, generation, code) in the running second. */
struct sk_rate_key {
    __u32 slot;
    __u32 generation;
    __u32 code;
};
struct sk_rate {
    __u64 window_ns;
    __u64 count;
    __u64 suppressed;
};
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, struct sk_rate_key);
    __type(value, struct sk_rate);
} rates SEC(".maps") __weak;

/* Descriptor tables whose owner was killed for what it had opened: whoever shares one (CLONE_FILES)
 * still holds the descriptor and dies at its next system call. Key: kernel address of the table;
 * value: files_owner(), for the address may since have been given to another sandbox's. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, __u64);
    __type(value, __u64);
} doomed_files SEC(".maps") __weak;

/* Fixed at load. The keys also stand in `config`, for the agent that adopts the maps. */
extern const volatile struct sk_hash_keys keys;
extern const volatile __u8 backend;     /* enum sk_backend: LSM or SIGNAL */
/* SINCE 6.18 programs on cgroups may send signals; set at load by a probe. */
extern const volatile __u8 cgroup_signal;
extern const volatile __u8 program_set; /* low byte of this set's id */
