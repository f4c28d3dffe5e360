// What a shim does with /out at the end: the copy to the caller's directory, what is told of it, and the result for the client.
#pragma once

#include "userspace/api/channel.h"
#include "userspace/launch/native.h"
#include "userspace/launch/out_copy.h"

namespace stockade::cmd {

StatusOr<launch::OutReport> CopyOutOf(const launch::NativeSandbox& sandbox, int target_fd, const api::Run& run);
// In sentences, and with `rows` as rows, as far as a message has room for them.
void TellOutputs(const launch::OutReport& report, bool rows, api::SessionEnded* to);
// Hands what the sandbox wrote as its result to the client, who knows what it must be, and waits for its verdict. Why nothing may be
// copied out; empty = it may.
std::string AskForVerdict(const launch::NativeSandbox& sandbox, const api::Contract& contract, api::Channel& client);

}  // namespace stockade::cmd
