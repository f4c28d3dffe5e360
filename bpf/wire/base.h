/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What both sides of the wire need before anything else: fixed-width integers and a
 * compile-time assertion that C and C++ both know. */
#pragma once
#ifndef SK_KERNEL_TYPES /* kernel_types.h defines the integers itself */
#include <linux/types.h>
#endif

#ifdef __cplusplus
#define SK_STATIC_ASSERT static_assert
#else
#define SK_STATIC_ASSERT _Static_assert
#endif
#define SK_INLINE static inline __attribute__((always_inline))
