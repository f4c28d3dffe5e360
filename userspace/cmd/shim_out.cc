#include "userspace/cmd/shim_out.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/model/text.h"

namespace stockade::cmd {
namespace {

// A person reads these.
constexpr int kMaxNotes = 20;
// Of a frame's 1 MiB; a path can have 4 KiB.
constexpr size_t kMaxRowBytes = 384 << 10;
constexpr size_t kRowBytes = 64;  // beside the path

// The client reads at most 4 MiB of JSON.
constexpr uint64_t kVerdictWaitNs = 10'000'000'000;

// A SessionResult with the bytes in sealed memory, or with why there are none.
Status SendResult(const launch::NativeSandbox& sandbox, const api::Contract& contract, api::Channel& client) {
    api::Message message;
    api::SessionResult& result = *message.mutable_session_result();
    const StatusOr<std::string> text = launch::ReadOut(sandbox.out_fd(), contract.result_file(), contract.result_max_bytes());
    if (!text.ok()) {
        result.set_error(std::string(text.status().message()));
        return client.Send(message);
    }
    const Fd memory(memfd_create("stockade-result", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memory.ok()) return ErrnoStatus(errno, "make memory for the result");
    SK_RETURN_IF_ERROR(WriteAll(memory.get(), *text));
    if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) return ErrnoStatus(errno, "seal the result");
    if (lseek(memory.get(), 0, SEEK_SET) != 0) return ErrnoStatus(errno, "rewind the result");
    return client.Send(message, {{api::FD_RESULT, memory.get()}});
}

}  // namespace

StatusOr<launch::OutReport> CopyOutOf(const launch::NativeSandbox& sandbox, int target_fd, const api::Run& run) {
    launch::OutLimits limits;
    if (run.out_bytes() > 0) limits.max_bytes = run.out_bytes();
    if (run.has_contract()) {
        limits.left_out = run.contract().result_file();
        limits.rules.emplace();
        for (const api::OutputRule& rule : run.contract().outputs()) {
            SK_ASSIGN_OR_RETURN(policy::PathPattern pattern, policy::ParsePattern(absl::StrCat("/", rule.pattern())));
            limits.rules->push_back({.pattern = std::move(pattern), .max_bytes = rule.max_bytes(), .max_files = rule.max_files()});
        }
    }
    return launch::CopyOut(sandbox.out_fd(), target_fd, run.caller_uid(), run.caller_gid(), limits);
}

void TellOutputs(const launch::OutReport& report, bool rows, api::SessionEnded* to) {
    for (const launch::OutDropped& dropped : report.dropped) {
        if (to->notes_size() >= kMaxNotes) break;
        // The sandbox chose the name: any bytes, and a message holds UTF-8.
        std::string path;
        (void)model::AppendEscaped(dropped.path, &path);
        to->add_notes(absl::StrCat("not copied from /out: ", path, ": ", dropped.reason));
    }
    if (report.dropped_count > kMaxNotes) {
        to->add_notes(absl::StrCat("not copied from /out: ", report.dropped_count, " in all"));
    }
    if (!rows) return;
    api::Outputs& outputs = *to->mutable_outputs();
    outputs.set_file_count(report.files);
    outputs.set_bytes(report.bytes);
    outputs.set_dropped_count(report.dropped_count);
    size_t left = kMaxRowBytes;
    for (const launch::OutCopied& copied : report.copied) {
        if (copied.path.size() + kRowBytes > left) break;
        left -= copied.path.size() + kRowBytes;
        api::OutFile& row = *outputs.add_files();
        row.set_path(copied.path);
        row.set_size(copied.bytes);
        row.set_sha256(std::string(copied.sha256.begin(), copied.sha256.end()));
    }
    left = kMaxRowBytes;
    for (const launch::OutDropped& dropped : report.dropped) {
        if (dropped.path.size() + kRowBytes > left) break;
        left -= dropped.path.size() + kRowBytes;
        api::OutDropped& row = *outputs.add_dropped();
        row.set_path(dropped.path);
        row.set_reason(dropped.reason);
    }
}

std::string AskForVerdict(const launch::NativeSandbox& sandbox, const api::Contract& contract, api::Channel& client) {
    if (!client.ok()) return "its client is gone, who would have looked at the result";
    const Status sent = SendResult(sandbox, contract, client);
    if (!sent.ok()) return absl::StrCat("the result cannot be handed to the client: ", sent.message());
    const uint64_t deadline = BootNow() + kVerdictWaitNs;
    while (true) {
        const uint64_t now = BootNow();
        const StatusOr<api::Packet> answer = client.Receive(now >= deadline ? 0 : static_cast<int>((deadline - now) / 1'000'000));
        if (!answer.ok()) return absl::StrCat("the client does not say whether the result is good: ", answer.status().message());
        if (!answer->message.has_result_verdict()) continue;  // a signal, or the size of a window
        if (answer->message.result_verdict().accepted()) return "";
        return absl::StrCat("the result is not what its contract says: ", answer->message.result_verdict().reason());
    }
}

}  // namespace stockade::cmd
