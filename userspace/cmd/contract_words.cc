#include "userspace/cmd/contract_words.h"

#include <fcntl.h>
#include <glob.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/json.h"
#include "userspace/cmd/policy_load.h"
#include "userspace/cmd/run_request.h"
#include "userspace/contract/call.h"
#include "userspace/contract/parse.h"
#include "userspace/contract/refusal.h"
#include "userspace/policy/judge.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::cmd {
namespace {

using policy::Diagnostic;
using policy::Severity;

// Of one pattern, as it stands for files of this host.
constexpr size_t kMaxProgramsTried = 16;

std::vector<std::string> ProgramsOf(const std::string& pattern) {
    glob_t found{};
    std::vector<std::string> programs;
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && i < kMaxProgramsTried; ++i) programs.emplace_back(found.gl_pathv[i]);
    }
    globfree(&found);
    return programs;
}

void Warn(std::vector<Diagnostic>& out, const policy::Position& at, std::string message) {
    out.push_back({Severity::kWarning, at, std::move(message)});
}

// The kernel judges each execution by the policy, whatever the contract allows.
void CheckPolicy(const contract::ToolContract& contract, const std::string& file, const std::vector<std::string>& dirs, std::vector<Diagnostic>& out) {
    if (contract.policy.empty()) return;
    const bool is_file = IsPolicyFile(contract.policy);
    std::string path = contract.policy;
    if (is_file && path.front() != '/') path = file.substr(0, file.rfind('/') == std::string::npos ? 0 : file.rfind('/') + 1) + path;
    const LoadedPolicies loaded = LoadPolicies(is_file ? std::vector<std::string>{path} : std::vector<std::string>{}, {}, dirs);
    if (is_file && loaded.policies.size() != 1)
        return Warn(out, contract.policy_at, absl::StrCat("policy ", path, ": ", loaded.policies.size(), " policies in this file, and one is needed"));
    const StatusOr<policy::ResolvedPolicy> resolved = loaded.library.Resolve(is_file ? loaded.policies[0].name : contract.policy);
    if (!resolved.ok()) return Warn(out, contract.policy_at, absl::StrCat("policy ", contract.policy, ": ", resolved.status().message()));
    const StatusOr<Fd> root = Fd::Open("/", O_PATH | O_DIRECTORY);
    if (!root.ok()) return;
    const StatusOr<policy::Judge> judge = policy::Judge::Create(*resolved, root->get());
    if (!judge.ok()) return Warn(out, contract.policy_at, absl::StrCat("policy ", contract.policy, ": ", judge.status().message()));
    for (const policy::Entry& entry : contract.commands) {
        for (const std::string& program : ProgramsOf(entry.text)) {
            policy::TestCase question;
            question.kind = policy::CaseKind::kExec;
            question.object = program;
            const policy::Decision decision = judge->Decide(question);
            if (!decision.allowed) Warn(out, entry.at, absl::StrCat(program, " may be asked for, and the policy ", contract.policy, " refuses it in the kernel: ", decision.reason));
        }
    }
}

std::string FilesText(absl::string_view title, const std::vector<contract::FileRule>& rules) {
    std::string text;
    for (const contract::FileRule& rule : rules)
        absl::StrAppend(&text, "  ", title, rule.text, "  at most ", rule.max_bytes, " bytes, ", rule.max_files, rule.max_files == 1 ? " file" : " files", rule.required ? "" : ", may be absent", "\n");
    return text;
}

std::string Texts(const std::vector<policy::Entry>& entries) {
    return absl::StrJoin(entries, "  ", [](std::string* out, const policy::Entry& entry) { out->append(entry.text); });
}

std::string ExplainText(const contract::ToolContract& contract) {
    if (contract.tool_class == contract::ToolClass::kInProcess) return absl::StrCat(contract.name, ": the tool ", contract.tool, " runs in its caller; `stockade run` refuses it\n");
    std::string text = absl::StrCat(contract.name, ": the tool ", contract.tool, " runs in a sandbox of its own, or not at all\n");
    absl::StrAppend(&text, "  commands: ", Texts(contract.commands), "\n");
    if (!contract.deny_arguments.empty()) absl::StrAppend(&text, "  refused arguments: ", Texts(contract.deny_arguments), "\n");
    absl::StrAppend(&text, "  policy: ", contract.policy, "   runtime: ", contract.runtime, contract.require.empty() ? "" : absl::StrCat(", required: ", contract.require), "   timeout: ", contract.timeout, "\n");
    text += FilesText("in:  ", contract.inputs);
    text += FilesText("out: ", contract.outputs);
    if (contract.result.has_value()) absl::StrAppend(&text, "  result: ", contract.result->file, "  at most ", contract.result->max_bytes, " bytes of JSON, ", contract.result->max_depth, " deep, by its schema; fields without a name there are taken out\n");
    absl::StrAppend(&text, "  output: the first ", contract.stdout_bytes, " bytes of each stream\n");
    absl::StrAppend(&text, "  approval: ", contract.approval ? absl::StrCat("asked for; ", contract.approval_timeout_ns / 1'000'000, " ms without an answer are a deny") : "none", "\n");
    return text;
}

std::string FilesJson(const std::vector<contract::FileRule>& rules) {
    std::vector<std::string> rows;
    for (const contract::FileRule& rule : rules) {
        JsonObject row;
        rows.push_back(row.Add("path", rule.text).Add("max_bytes", rule.max_bytes).Add("max_files", rule.max_files).Add("required", rule.required).Done());
    }
    return JsonArray(rows);
}

std::string TextsJson(const std::vector<policy::Entry>& entries) {
    std::vector<std::string> rows;
    for (const policy::Entry& entry : entries) rows.push_back(JsonString(entry.text));
    return JsonArray(rows);
}

std::string ExplainJson(const contract::ToolContract& contract, const std::vector<std::string>& command, const Status& verdict) {
    JsonObject out;
    out.Add("name", contract.name).Add("tool", contract.tool).Add("class", contract.tool_class == contract::ToolClass::kSandbox ? "sandbox" : "in-process");
    out.AddRaw("commands", TextsJson(contract.commands)).AddRaw("deny_arguments", TextsJson(contract.deny_arguments));
    out.Add("policy", contract.policy).Add("runtime", contract.runtime).Add("timeout", contract.timeout).Add("approval", contract.approval);
    out.AddRaw("inputs", FilesJson(contract.inputs)).AddRaw("outputs", FilesJson(contract.outputs));
    if (contract.result.has_value()) out.AddRaw("result", JsonObject().Add("file", contract.result->file).Add("max_bytes", contract.result->max_bytes).AddRaw("schema", contract.result->schema).Done());
    if (!command.empty()) out.Add("allowed", verdict.ok()).Add("code", contract::RefusalCode(verdict)).Add("reason", std::string(verdict.message()));
    return out.Done() + "\n";
}

// What is wrong with it is said in `io`.
StatusOr<contract::ToolContract> ReadContract(const std::string& file, ContractOutput& io) {
    const StatusOr<std::string> text = ReadFile(file, policy::kMaxYamlBytes);
    StatusOr<contract::ToolContract> contract = text.ok() ? contract::ParseOne(file, *text) : text.status();
    if (!contract.ok()) io.err = absl::StrCat(contract.status().message(), "\n");
    return contract;
}

}  // namespace

int ContractCheck(const std::vector<std::string>& files, const std::vector<std::string>& dirs, bool strict, bool json, ContractOutput& io) {
    std::vector<Diagnostic> diagnostics;
    size_t contracts = 0;
    for (const std::string& file : files) {
        const StatusOr<std::string> text = ReadFile(file, policy::kMaxYamlBytes);
        if (!text.ok()) {
            diagnostics.push_back({Severity::kError, {file, 0, 0}, std::string(text.status().message())});
            continue;
        }
        const contract::Parsed parsed = contract::Parse(file, *text);
        diagnostics.insert(diagnostics.end(), parsed.diagnostics.begin(), parsed.diagnostics.end());
        contracts += parsed.contracts.size();
        if (!parsed.diagnostics.empty()) continue;
        for (const contract::ToolContract& contract : parsed.contracts) CheckPolicy(contract, file, dirs, diagnostics);
    }
    const bool errors = policy::HasErrors(diagnostics);
    std::vector<std::string> rows;
    for (const Diagnostic& diagnostic : diagnostics) rows.push_back(json ? DiagnosticJson(diagnostic) : policy::ToString(diagnostic));
    if (json) {
        io.out = JsonArray(rows) + "\n";
    } else {
        for (const std::string& row : rows) absl::StrAppend(&io.err, row, "\n");
        if (!errors) io.out = absl::StrCat(contracts, contracts == 1 ? " contract" : " contracts", " ok\n");
    }
    return errors || (strict && !diagnostics.empty()) ? 1 : 0;
}

int ContractExplain(const std::string& file, std::vector<std::string> command, bool json, ContractOutput& io) {
    const StatusOr<contract::ToolContract> contract = ReadContract(file, io);
    if (!contract.ok()) return kContractUsage;
    Status verdict;
    if (!command.empty()) {
        const StatusOr<std::string> program = contract::FindProgram(command.front());
        if (program.ok()) command.front() = *program;
        verdict = program.ok() ? contract::CheckCall(*contract, command) : program.status();
    }
    if (json) {
        io.out = ExplainJson(*contract, command, verdict);
    } else {
        io.out = ExplainText(*contract);
        if (!command.empty()) absl::StrAppend(&io.out, verdict.ok() ? "may be started: " : "refused: ", verdict.ok() ? absl::StrJoin(command, " ") : std::string(verdict.message()), "\n");
    }
    return verdict.ok() ? 0 : 1;
}

int ContractRender(const std::string& file, const contract::JobRequest& request, ContractOutput& io) {
    const StatusOr<contract::ToolContract> contract = ReadContract(file, io);
    if (!contract.ok()) return kContractUsage;
    const StatusOr<contract::JobText> job = contract::RenderJob(*contract, request);
    if (!job.ok()) {
        io.err = absl::StrCat("stockade: contract render: ", job.status().message(), "\n");
        return contract::RefusalCode(job.status()).empty() ? kContractUsage : 1;
    }
    io.out = job->yaml;
    for (const std::string& note : job->notes) absl::StrAppend(&io.err, "stockade: contract render: ", note, "\n");
    return 0;
}

}  // namespace stockade::cmd
