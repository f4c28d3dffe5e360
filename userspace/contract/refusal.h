// Why a call was refused before anything of it existed: a sentence, and a stable code beside it.
#pragma once

#include <string>

#include "absl/strings/cord.h"
#include "userspace/base/status.h"

namespace stockade::contract {

// Codes: contract.class, contract.command, contract.argument, contract.flag, contract.input, contract.policy, approval.denied,
// approval.timeout, approval.failed.
inline constexpr char kRefusalUrl[] = "stockade.dev/refusal";

inline Status Refused(absl::string_view code, absl::string_view why) {
    Status status = absl::PermissionDeniedError(why);
    status.SetPayload(kRefusalUrl, absl::Cord(code));
    return status;
}

// Empty where the status is no refusal.
inline std::string RefusalCode(const Status& status) {
    const auto code = status.GetPayload(kRefusalUrl);
    return code.has_value() ? std::string(*code) : "";
}

}  // namespace stockade::contract
