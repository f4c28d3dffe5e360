#include "userspace/cmd/run_result.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/sha256.h"
#include "userspace/cmd/json.h"
#include "userspace/model/json.h"
#include "userspace/model/text.h"
#include "userspace/pipeline/summary.h"

namespace stockade::cmd {
namespace {

std::string LabelsJson(const api::Labels& labels) {
    JsonObject free;
    for (const auto& [key, value] : labels.free()) free.Add(key, value);
    JsonObject out;
    out.Add("session", labels.session()).Add("tool", labels.tool()).Add("trace", labels.trace());
    return out.AddRaw("labels", free.Done()).Done();
}

std::string TimesJson(const api::Timeline& times) {
    JsonObject out;
    const std::pair<const char*, uint64_t> steps[] = {{"created", times.created()},
                                                      {"attested", times.attested()},
                                                      {"started", times.started()},
                                                      {"condemned", times.condemned()},
                                                      {"freeze_asked", times.freeze_asked()},
                                                      {"frozen", times.frozen()},
                                                      {"evidence", times.evidence()},
                                                      {"kill_asked", times.kill_asked()},
                                                      {"empty", times.empty()},
                                                      {"ended", times.ended()},
                                                      {"removed", times.removed()},
                                                      {"evidence_kept", times.evidence_kept()}};
    for (const auto& [name, boot_ns] : steps) {
        if (boot_ns != 0) out.Add(absl::StrCat(name, "_boot_ns"), boot_ns);
    }
    return out.Done();
}

std::string AttestationJson(const api::Attestation& attestation) {
    JsonObject coverage;
    for (const std::string& line : attestation.coverage()) {
        const size_t colon = line.find(": ");
        if (colon != std::string::npos) coverage.Add(line.substr(0, colon), line.substr(colon + 2));
    }
    return coverage.Done();
}

template <typename Strings>
std::string StringsJson(const Strings& strings) {
    std::vector<std::string> values;
    for (const std::string& text : strings) values.push_back(JsonString(text));
    return JsonArray(values);
}

std::string EvidenceJson(const api::RunResult& result) {
    std::vector<std::string> rows;
    for (const api::ProcessRow& process : result.evidence()) {
        JsonObject row;
        row.Add("pid", process.pid()).Add("ppid", process.ppid()).Add("state", process.state());
        row.Add("comm", process.comm()).Add("command", process.command());
        rows.push_back(row.Done());
    }
    return JsonArray(rows);
}

std::string Hex(const std::string& bytes) { return absl::BytesToHexString(bytes); }

std::string OutputsJson(const api::Outputs& outputs) {
    std::vector<std::string> copied, dropped;
    for (const api::OutFile& file : outputs.files()) {
        JsonObject row;
        copied.push_back(row.Add("path", file.path()).Add("bytes", file.size()).Add("sha256", Hex(file.sha256())).Done());
    }
    for (const api::OutDropped& file : outputs.dropped()) dropped.push_back(JsonObject().Add("path", file.path()).Add("reason", file.reason()).Done());
    JsonObject out;
    out.Add("files", outputs.file_count()).Add("bytes", outputs.bytes()).AddRaw("copied", JsonArray(copied));
    return out.Add("dropped_count", outputs.dropped_count()).AddRaw("dropped", JsonArray(dropped)).Done();
}

std::string ContractJson(const api::ContractReport& contract) {
    std::vector<std::string> inputs, streams;
    for (const api::InputFile& file : contract.inputs()) {
        JsonObject row;
        inputs.push_back(row.Add("path", file.path()).Add("bytes", file.size()).Add("sha256", Hex(file.sha256())).Done());
    }
    for (const api::StreamReport& stream : contract.streams()) {
        JsonObject row;
        row.Add("name", stream.name()).Add("bytes", stream.bytes()).Add("dropped_bytes", stream.dropped_bytes());
        streams.push_back(row.Add("sha256", stream.sha256()).Add("untrusted", true).Done());
    }
    JsonObject approval;
    approval.Add("by", contract.approved_by()).Add("reason", contract.approval_reason()).Add("uid", contract.approver_uid());
    JsonObject out;
    out.Add("name", contract.name()).Add("tool", contract.tool()).Add("sha256", contract.contract_sha256());
    out.Add("arguments_sha256", contract.arguments_sha256()).Add("inputs_sha256", contract.inputs_sha256());
    out.Add("policy_sha256", contract.policy_sha256()).Add("call_sha256", contract.call_sha256());
    out.AddRaw("approval", contract.approved() ? approval.Done() : "null");
    return out.AddRaw("inputs", JsonArray(inputs)).AddRaw("streams", JsonArray(streams)).Done();
}

// What a tool wrote is data of a stranger, also where it is what the schema says.
std::string ToolResultJson(const api::ContractReport& contract) {
    JsonObject out;
    out.Add("status", contract.result_status()).Add("reason", contract.result_reason()).Add("untrusted", true);
    const bool accepted = contract.result_status() == "accepted";
    if (accepted) out.Add("sha256", Sha256Hex(contract.result_json()));
    return out.AddRaw("value", accepted ? contract.result_json() : "null").Done();
}

}  // namespace

std::string ResultJson(const api::RunResult& result) {
    std::string summary;
    // The record from the start on has none, and reading one's fields is what makes a start slow (descriptors, cmake/StockadeProto.cmake).
    if (result.has_summary()) model::AppendJson(result.summary(), &summary);
    const api::Attestation& attestation = result.attestation();
    JsonObject policy;
    policy.Add("name", attestation.policy())
        .Add("hash", attestation.policy_hash())
        .Add("mode", attestation.mode());
    JsonObject removal;
    removal.Add("clean", result.removal().clean())
        .AddRaw("left_over", StringsJson(result.removal().left_over()));
    if (result.overrun_ns() != 0) removal.Add("overrun_ns", result.overrun_ns());
    JsonObject out;
    out.Add("id", result.id()).Add("exit_code", result.exit_code()).Add("end", result.end());
    out.Add("reason", result.reason()).Add("code", result.code());
    out.AddRaw("policy", policy.Done()).Add("backend", attestation.backend());
    out.AddRaw("sandbox", LabelsJson(result.labels())).AddRaw("times", TimesJson(result.times()));
    out.AddRaw("summary", summary.empty() ? "{}" : summary).AddRaw("evidence", EvidenceJson(result));
    out.AddRaw("removal", removal.Done()).AddRaw("coverage", AttestationJson(attestation));
    if (!result.evidence_path().empty()) out.AddRaw("evidence_folder", JsonObject().Add("path", result.evidence_path()).Add("manifest_sha256", result.evidence_sha256()).Done());
    if (result.has_outputs()) out.AddRaw("outputs", OutputsJson(result.outputs()));
    if (result.has_contract()) {
        out.AddRaw("contract", ContractJson(result.contract()));
        if (!result.contract().result_status().empty()) out.AddRaw("result", ToolResultJson(result.contract()));
    }
    return out.AddRaw("notes", StringsJson(result.notes())).Done();
}

std::string ResultText(const api::RunResult& result, bool quiet) {
    std::string text;
    if (!result.reason().empty()) {
        std::string reason;
        (void)model::AppendEscaped(result.reason(), &reason);
        const char* what = result.end() == "policy"    ? "killed by policy "
                           : result.end() == "rule"    ? "killed by a rule"
                           : result.end() == "failed"  ? "not started"
                           : result.end() == "timeout" ? "killed"
                           : result.end() == "exited"  ? "not run"
                                                       : "ended";
        absl::StrAppend(&text, "stockade: ", what,
                        result.end() == "policy" ? result.attestation().policy() : "", ": ", reason, "\n");
    }
    if (!quiet) absl::StrAppend(&text, pipeline::SummaryText(result.summary()));
    for (const std::string& note : result.notes()) {
        // Results that did not arrive are nothing to be quiet about.
        if (quiet && !absl::StrContains(note, "copied from /out: ") &&
            !absl::StartsWith(note, "copy from /out: "))
            continue;
        std::string line;
        (void)model::AppendEscaped(note, &line);
        absl::StrAppend(&text, "stockade: ", line, "\n");
    }
    for (const std::string& left : result.removal().left_over()) {
        absl::StrAppend(&text, "stockade: left over: ", left, "\n");
    }
    return text;
}

}  // namespace stockade::cmd
