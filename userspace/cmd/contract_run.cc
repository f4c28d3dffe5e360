#include "userspace/cmd/contract_run.h"

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"
#include "userspace/base/sha256.h"
#include "userspace/cmd/policy_load.h"
#include "userspace/contract/approval.h"
#include "userspace/contract/inputs.h"
#include "userspace/contract/parse.h"
#include "userspace/contract/refusal.h"
#include "userspace/model/sandbox.h"
#include "userspace/policy/canonical.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::cmd {
namespace {

// Flags whose meaning is the contract's.
Status CheckFree(const RunFlags& flags) {
    const std::pair<const char*, bool> kTaken[] = {{"--policy", !flags.policy.empty()},     {"--out-size", !flags.out_size.empty()},
                                                   {"--bind", !flags.binds.empty()},        {"--rootfs", !flags.rootfs.empty()},
                                                   {"--seccomp", !flags.seccomp.empty()},   {"--require", !flags.require.empty()},
                                                   {"--timeout", !flags.timeout.empty()},   {"--runtime", flags.runtime != RunFlags().runtime}};
    for (const auto& [flag, given] : kTaken) {
        if (given) return contract::Refused("contract.flag", absl::StrCat(flag, " is not taken with --contract: the contract says what holds"));
    }
    return absl::OkStatus();
}

std::string PolicyFile(const RunFlags& flags, const std::string& policy) {
    if (policy.front() == '/') return policy;
    const size_t slash = flags.contract.rfind('/');
    return absl::StrCat(slash == std::string::npos ? "./" : flags.contract.substr(0, slash + 1), policy);
}

}  // namespace

StatusOr<std::unique_ptr<ContractRun>> ContractRun::Create(const RunFlags& flags, const ClientOptions& options) {
    SK_RETURN_IF_ERROR(CheckFree(flags));
    StatusOr<std::string> text = ReadFile(flags.contract, policy::kMaxYamlBytes);
    if (!text.ok()) return Annotate(text.status(), "--contract");
    auto run = std::unique_ptr<ContractRun>(new ContractRun(flags, options));
    SK_ASSIGN_OR_RETURN(run->contract_, contract::ParseOne(flags.contract, *text));
    run->call_.contract_sha256 = Sha256Hex(*text);
    run->report_.set_name(run->contract_.name);
    run->report_.set_tool(run->contract_.tool);
    run->report_.set_contract_sha256(run->call_.contract_sha256);
    SK_RETURN_IF_ERROR(run->TakeFlags());
    return run;
}

Status ContractRun::TakeFlags() {
    if (contract_.tool_class == contract::ToolClass::kSandbox) {
        // What was approved is this file, whatever PATH says inside.
        SK_ASSIGN_OR_RETURN(flags_.command.front(), contract::FindProgram(flags_.command.front()));
    }
    SK_RETURN_IF_ERROR(contract::CheckCall(contract_, flags_.command));
    if (!flags_.tool.empty() && flags_.tool != contract_.tool)
        return contract::Refused("contract.flag", absl::StrCat("--tool ", flags_.tool, ": this is the contract of ", contract_.tool));
    if (!flags_.in.empty() && contract_.inputs.empty())
        return contract::Refused("contract.flag", "--in: the contract declares no inputs");
    if (contract_.approval && flags_.approval.empty())
        return contract::Refused("approval.failed", "the contract asks for an approval: say where it is asked for with --approval");
    flags_.tool = contract_.tool;
    flags_.policy = IsPolicyFile(contract_.policy) ? PolicyFile(flags_, contract_.policy) : contract_.policy;
    flags_.runtime = contract_.runtime;
    flags_.require = contract_.require;
    flags_.timeout = contract_.timeout;
    flags_.no_tty = true;
    return absl::OkStatus();
}

Status ContractRun::Complete(RunRequest* request) {
    api::Contract& to = *request->run.mutable_contract();
    to.set_name(contract_.name);
    to.set_sha256(call_.contract_sha256);
    call_.argv = flags_.command;
    call_.env.assign(request->run.env().begin(), request->run.env().end());
    call_.cwd = flags_.workdir;
    SK_RETURN_IF_ERROR(AddInputs(request));
    SK_RETURN_IF_ERROR(AddPolicy(request));
    AddOutputs(&to);
    if (contract_.limits.out_bytes > 0) request->run.set_out_bytes(contract_.limits.out_bytes);
    const contract::CallDigests digests = contract::DigestsOf(call_);
    report_.set_arguments_sha256(digests.arguments);
    report_.set_inputs_sha256(digests.inputs);
    report_.set_policy_sha256(digests.policy);
    report_.set_call_sha256(digests.all);
    for (const auto& [role, fd] : request->fds) {
        if (role != api::FD_OUT) continue;
        SK_ASSIGN_OR_RETURN(out_, Fd::Dup(fd.get()));
    }
    return absl::OkStatus();
}

Status ContractRun::AddInputs(RunRequest* request) {
    int in = -1;
    for (const auto& [role, fd] : request->fds) in = role == api::FD_IN ? fd.get() : in;
    if (in < 0) {
        for (const contract::FileRule& rule : contract_.inputs) {
            if (rule.required) return contract::Refused("contract.input", absl::StrCat("the contract declares the input ", rule.text, ": give its directory with --in"));
        }
        return absl::OkStatus();
    }
    SK_ASSIGN_OR_RETURN(contract::FoundInputs found, contract::FindInputs(contract_, in));
    for (const contract::InputFile& file : found.files) {
        api::InputFile& row = *request->run.mutable_contract()->add_inputs();
        row.set_path(file.path);
        row.set_size(file.bytes);
        row.set_sha256(absl::HexStringToBytes(file.sha256));
        *report_.add_inputs() = row;
    }
    if (found.left_out > 0)
        notes_.push_back(absl::StrCat("not declared, and not in /in: ", found.first_left_out, found.left_out > 1 ? absl::StrCat(" and ", found.left_out - 1, " more") : ""));
    call_.inputs = std::move(found.files);
    return absl::OkStatus();
}

// The policy as this side reads it. The agent compares it with what it would use.
Status ContractRun::AddPolicy(RunRequest* request) {
    const StatusOr<Config> config = LoadConfig(options_.config_path, options_.config_path != kDefaultConfigPath);
    if (!config.ok() && !absl::IsPermissionDenied(config.status())) return config.status();
    const std::vector<std::string> dirs = (config.ok() ? *config : Config()).policy_dirs;
    const bool is_file = !request->run.policy().text().empty();
    const LoadedPolicies loaded = LoadPolicies(is_file ? std::vector<std::string>{flags_.policy} : std::vector<std::string>{}, {}, dirs);
    if (is_file && loaded.policies.size() != 1)
        return contract::Refused("contract.policy", absl::StrCat(flags_.policy, ": ", loaded.policies.size(), " policies in this file, and one is needed"));
    const StatusOr<policy::ResolvedPolicy> resolved = loaded.library.Resolve(is_file ? loaded.policies[0].name : flags_.policy);
    if (!resolved.ok() || (is_file && policy::HasErrors(loaded.diagnostics))) {
        std::string why = resolved.ok() ? "" : std::string(resolved.status().message());
        for (const policy::Diagnostic& diagnostic : loaded.diagnostics) {
            if (is_file && diagnostic.severity == policy::Severity::kError) absl::StrAppend(&why, why.empty() ? "" : "\n", policy::ToString(diagnostic));
        }
        return contract::Refused("contract.policy", absl::StrCat("policy ", contract_.policy, ": ", why));
    }
    call_.policy_sha256 = Sha256Hex(policy::CanonicalText(*resolved));
    request->run.mutable_contract()->set_policy_sha256(call_.policy_sha256);
    return absl::OkStatus();
}

void ContractRun::AddOutputs(api::Contract* to) const {
    for (const contract::FileRule& rule : contract_.outputs) {
        api::OutputRule& row = *to->add_outputs();
        row.set_pattern(rule.text);
        row.set_max_bytes(rule.max_bytes);
        row.set_max_files(rule.max_files);
    }
    if (contract_.result.has_value()) {
        to->set_result_file(contract_.result->file);
        to->set_result_max_bytes(contract_.result->max_bytes);
    }
    const contract::Limits& limits = contract_.limits;
    if (limits.memory_bytes == 0 && limits.pids == 0 && limits.cpu_percent == 0) return;
    to->mutable_limits()->set_memory_bytes(limits.memory_bytes);
    to->mutable_limits()->set_pids(limits.pids);
    to->mutable_limits()->set_cpu_percent(limits.cpu_percent);
}

Status ContractRun::Approve() {
    if (flags_.approval.empty()) return absl::OkStatus();
    const StatusOr<contract::ApprovalChannel> channel = contract::ApprovalChannel::Parse(flags_.approval);
    if (!channel.ok()) return contract::Refused("approval.failed", channel.status().message());
    const contract::ApprovalRequest request{.id = model::NewUlid(),
                                            .contract = &contract_,
                                            .call = call_,
                                            .session = flags_.session,
                                            .trace = flags_.trace,
                                            .cause = flags_.cause,
                                            .timeout_ns = contract_.approval_timeout_ns};
    const StatusOr<contract::Approval> approval = contract::Ask(*channel, request, contract_.approval_timeout_ns);
    if (!approval.ok()) return contract::Refused(contract::RefusalCode(approval.status()), absl::StrCat("not approved: ", approval.status().message()));
    report_.set_approved(true);
    report_.set_approved_by(approval->by);
    report_.set_approval_reason(approval->reason);
    report_.set_approver_uid(approval->uid);
    return absl::OkStatus();
}

api::ResultVerdict ContractRun::Judge(api::Packet& packet) {
    api::ResultVerdict verdict;
    StatusOr<std::string> text = absl::NotFoundError(packet.message.session_result().error());
    if (const Fd memory = packet.Take(api::FD_RESULT); memory.ok() && contract_.result.has_value()) text = ReadAll(memory.get(), contract_.result->max_bytes);
    StatusOr<std::string> clean =
        text.ok() ? contract_.result->compiled->Clean(*text, {.max_bytes = contract_.result->max_bytes, .max_depth = contract_.result->max_depth}) : text.status();
    verdict.set_accepted(clean.ok());
    report_.set_result_status(clean.ok() ? "accepted" : "refused");
    if (clean.ok()) {
        report_.set_result_json(*std::move(clean));
    } else {
        verdict.set_reason(std::string(clean.status().message()));
        report_.set_result_reason(verdict.reason());
    }
    return verdict;
}

// By one rename, so that whoever waits for the file sees all of it.
Status ContractRun::WriteResult() const {
    const std::string& name = contract_.result->file;
    const std::string temporary = absl::StrCat(".stockade-", report_.call_sha256().substr(0, 16), ".", getpid());
    const auto write = [&]() -> Status {
        SK_ASSIGN_OR_RETURN(const Fd file, Fd::OpenAt(out_, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644));
        SK_RETURN_IF_ERROR(WriteAll(file.get(), report_.result_json() + "\n"));
        return renameat(out_.get(), temporary.c_str(), out_.get(), name.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, absl::StrCat("write ", name));
    };
    const Status status = write();
    if (!status.ok()) (void)unlinkat(out_.get(), temporary.c_str(), 0);  // where it was made
    return status;
}

void ContractRun::Report(const StdioRelay& stdio, api::RunResult* result) {
    if (contract_.result.has_value() && report_.result_status().empty()) report_.set_result_status("none");
    if (report_.result_status() == "accepted" && out_.ok()) {
        if (const Status written = WriteResult(); !written.ok()) notes_.push_back(absl::StrCat("not copied from /out: ", written.message()));
    }
    if (report_.result_status() == "refused") {
        notes_.push_back(absl::StrCat("not copied from /out: the result is not what the contract says: ", report_.result_reason()));
        if (result->exit_code() == 0) result->set_exit_code(kBadResult);
    }
    for (const int stream : {1, 2}) {
        const StdioRelay::Stream& told = stdio.stream(stream);
        api::StreamReport& row = *report_.add_streams();
        row.set_name(stream == 1 ? "stdout" : "stderr");
        row.set_bytes(told.bytes);
        row.set_dropped_bytes(told.dropped_bytes);
        row.set_sha256(told.sha256);
        if (told.dropped_bytes > 0)
            notes_.push_back(absl::StrCat(row.name(), ": the first ", told.bytes, " bytes were handed on, as the contract says; ", told.dropped_bytes, " were dropped"));
    }
    for (const std::string& note : notes_) result->add_notes(note);
    *result->mutable_contract() = report_;
}

}  // namespace stockade::cmd
