// How an approval is asked for: approval.h says what each does.
#pragma once

#include "userspace/contract/approval.h"

namespace stockade::contract {

StatusOr<Approval> AskByFile(const std::string& path, const ApprovalRequest& request, uint64_t timeout_ns);
StatusOr<Approval> AskBySocket(const std::string& path, const ApprovalRequest& request, uint64_t timeout_ns);
StatusOr<Approval> AskByCommand(const std::string& command, const ApprovalRequest& request, uint64_t timeout_ns);

}  // namespace stockade::contract
