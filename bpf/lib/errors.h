/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Failures are counted where they happen. */
#pragma once
#include "bpf/lib/maps.h"

static __always_inline void count_error(__u32 site) {
    __u64 *count = bpf_map_lookup_elem(&errors, &site);
    if (count) *count += 1;
}

/* Counts a negative helper result; gives it back. */
static __always_inline long count_err(__u32 site, long rc) {
    if (rc < 0) count_error(site);
    return rc;
}
