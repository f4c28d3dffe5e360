// What every fallible function returns, and the macros that pass failures on.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stockade {

using absl::Status;
using absl::StatusOr;

// The same status with "what was tried: " in front of its message; OK stays OK.
Status Annotate(const Status& status, absl::string_view tried);

}  // namespace stockade

// Returns from the calling function when `expr` is not OK.
#define SK_RETURN_IF_ERROR(expr)                       \
    do {                                               \
        ::absl::Status sk_status_ = (expr);            \
        if (!sk_status_.ok()) return sk_status_;       \
    } while (0)

#define SK_CONCAT_(a, b) a##b
#define SK_CONCAT(a, b) SK_CONCAT_(a, b)

// SK_ASSIGN_OR_RETURN(auto fd, Open(...)): declares or assigns, or returns the failure.
#define SK_ASSIGN_OR_RETURN(lhs, expr) SK_ASSIGN_OR_RETURN_(SK_CONCAT(sk_or_, __LINE__), lhs, expr)
#define SK_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
    auto tmp = (expr);                       \
    if (!tmp.ok()) return tmp.status();      \
    lhs = *std::move(tmp)
