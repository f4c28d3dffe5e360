#include "userspace/contract/approval.h"

#include <signal.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/contract/approval_channels.h"
#include "userspace/contract/json_value.h"
#include "userspace/contract/refusal.h"
#include "userspace/policy/reader.h"

namespace stockade::contract {
namespace {

using policy::Reader;

// What the caller gave may be no UTF-8; the digests are over the bytes as they are.
JsonValue Text(const std::string& bytes) {
    return JsonValue::parse(JsonValue(bytes).dump(-1, ' ', false, JsonValue::error_handler_t::replace));
}

Status CheckKeys(const JsonValue& answer) {
    for (const auto& [key, value] : answer.items()) {
        static constexpr absl::string_view kKeys[] = {"id", "digest", "decision", "by", "reason"};
        if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys))
            return absl::InvalidArgumentError(absl::StrCat("unknown key '", Reader::Printable(key), "'"));
        if (!value.is_string()) return absl::InvalidArgumentError(absl::StrCat(key, " is no text"));
    }
    for (const char* key : {"id", "digest", "decision"}) {
        if (!answer.contains(key)) return absl::InvalidArgumentError(absl::StrCat("lacks '", key, "'"));
    }
    return absl::OkStatus();
}

}  // namespace

StatusOr<ApprovalChannel> ApprovalChannel::Parse(const std::string& text) {
    static constexpr std::pair<absl::string_view, Kind> kKinds[] = {{"file:", Kind::kFile}, {"unix:", Kind::kUnix}, {"exec:", Kind::kExec}};
    for (const auto& [prefix, kind] : kKinds) {
        if (absl::StartsWith(text, prefix) && text.size() > prefix.size()) return ApprovalChannel{kind, text.substr(prefix.size())};
    }
    return absl::InvalidArgumentError(absl::StrCat("--approval takes file:PATH, unix:PATH or exec:CMD, not ", text));
}

std::string ApprovalRequest::ToJson() const {
    const CallDigests digests = DigestsOf(call);
    JsonValue inputs = JsonValue::array(), argv = JsonValue::array(), env = JsonValue::array();
    for (const InputFile& file : call.inputs) inputs.push_back({{"path", Text(file.path)}, {"bytes", file.bytes}, {"sha256", file.sha256}});
    for (const std::string& word : call.argv) argv.push_back(Text(word));
    for (const std::string& entry : call.env) env.push_back(Text(entry));
    const JsonValue out = {{"version", 1},
                           {"id", id},
                           {"digest", digests.all},
                           {"tool", contract->tool},
                           {"description", Text(contract->description)},
                           {"contract", {{"name", contract->name}, {"sha256", digests.contract}}},
                           {"policy", {{"name", contract->policy}, {"sha256", digests.policy}}},
                           {"arguments", argv},
                           {"environment", env},
                           {"directory", Text(call.cwd)},
                           {"arguments_sha256", digests.arguments},
                           {"inputs", inputs},
                           {"inputs_sha256", digests.inputs},
                           {"session", Text(session)},
                           {"trace", Text(trace)},
                           {"cause", Text(cause)},
                           {"timeout_ms", timeout_ns / 1'000'000}};
    return out.dump();
}

StatusOr<Approval> ReadAnswer(const std::string& text, const ApprovalRequest& request) {
    const auto failed = [](absl::string_view why) { return Refused("approval.failed", absl::StrCat("the answer is none: ", why)); };
    const StatusOr<JsonValue> answer = ParseJsonValue(text, {.max_bytes = kMaxAnswerBytes, .max_depth = 2, .max_values = 16});
    if (!answer.ok()) return failed(answer.status().message());
    if (!answer->is_object()) return failed("no JSON object");
    if (const Status keys = CheckKeys(*answer); !keys.ok()) return failed(keys.message());
    Approval out;
    out.by = answer->value("by", "");
    out.reason = answer->value("reason", "");
    out.digest = DigestsOf(request.call).all;
    const std::string decision = answer->value("decision", "");
    if (answer->value("id", "") != request.id) return failed("it is for another call (id)");
    if (answer->value("digest", "") != out.digest) return failed("it is for another contract, other arguments, inputs or policy (digest)");
    if (decision == "deny") {
        return Refused("approval.denied", absl::StrCat("denied", out.by.empty() ? "" : " by ", Reader::Printable(out.by), out.reason.empty() ? "" : ": ", Reader::Printable(out.reason)));
    }
    if (decision != "allow") return failed("the decision is neither allow nor deny");
    return out;
}

StatusOr<Approval> Ask(const ApprovalChannel& channel, const ApprovalRequest& request, uint64_t timeout_ns) {
    (void)signal(SIGPIPE, SIG_IGN);  // an approver that goes away is an answer that does not come
    switch (channel.kind) {
        case ApprovalChannel::Kind::kFile:
            return AskByFile(channel.target, request, timeout_ns);
        case ApprovalChannel::Kind::kUnix:
            return AskBySocket(channel.target, request, timeout_ns);
        case ApprovalChannel::Kind::kExec:
            return AskByCommand(channel.target, request, timeout_ns);
    }
    return absl::InternalError("no such channel");
}

}  // namespace stockade::contract
