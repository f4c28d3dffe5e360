// A person's, or another program's, word before a call is started. No answer is a deny, and so is every answer that is not one.
//
//   SK_ASSIGN_OR_RETURN(auto where, ApprovalChannel::Parse("unix:/run/reviewer.sock"));
//   SK_ASSIGN_OR_RETURN(Approval approval, Ask(where, request, 60'000'000'000));    // refused: approval.*
//
// The request is one line of JSON. The answer is one JSON object: {"id":..., "digest":..., "decision":"allow"|"deny", "by":..., "reason":...};
// id and digest repeat the request's. The digest is over contract, arguments, inputs and policy; the id is of this one call, so that
// what was said of one call says nothing of the next, though it be the same.
//   file:PATH  the request is written to PATH.request, and taken away again; PATH is waited for and must be a new regular file of root or
//              of the caller that nobody else may write
//   unix:PATH  sent over a stream socket; who answers must be root or the caller, as the kernel says (SO_PEERCRED)
//   exec:CMD   `sh -c CMD` gets it on standard input and answers on standard output
#pragma once

#include <cstdint>
#include <string>

#include "userspace/base/status.h"
#include "userspace/contract/call.h"

namespace stockade::contract {

struct ApprovalChannel {
    enum class Kind { kFile, kUnix, kExec };
    Kind kind = Kind::kFile;
    std::string target;

    static StatusOr<ApprovalChannel> Parse(const std::string& text);
};

struct ApprovalRequest {
    std::string id;  // of this call
    const ToolContract* contract = nullptr;  // not owned
    Call call;
    std::string session, trace, cause;
    uint64_t timeout_ns = 0;

    std::string ToJson() const;  // without a newline
};

struct Approval {
    std::string by;      // as the answer says
    std::string reason;  // likewise
    uint32_t uid = 0;    // who answered, as the kernel says: the socket's peer, the file's owner, or our own for exec
    std::string digest;
};

// Refused with approval.denied, approval.timeout or approval.failed. Leaves nothing: no file of ours, no process. From here on the
// process ignores SIGPIPE.
StatusOr<Approval> Ask(const ApprovalChannel& channel, const ApprovalRequest& request, uint64_t timeout_ns);

// An answer for this request, or why it is none.
StatusOr<Approval> ReadAnswer(const std::string& text, const ApprovalRequest& request);

inline constexpr size_t kMaxAnswerBytes = 64 << 10;

}  // namespace stockade::contract
