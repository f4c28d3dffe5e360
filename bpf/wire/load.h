/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/wire/base.h"

/* Eight bytes from any address. The compiler for BPF puts them together one by one where it does not know the
 * alignment; the processors that we support do not need one, and the verifier of their kernels asks for none. */
SK_INLINE __u64 sk_load8(const __u8 *bytes) {
#ifdef __bpf__
    return *(const __u64 *)(const void *)bytes;
#else
    __u64 word;
    __builtin_memcpy(&word, bytes, sizeof(word));
    return word;
#endif
}
