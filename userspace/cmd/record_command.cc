#include "userspace/cmd/record_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/base/sha256.h"
#include "userspace/cmd/design_record.h"
#include "userspace/cmd/policy_load.h"
#include "userspace/cmd/run_request.h"
#include "userspace/contract/parse.h"
#include "userspace/policy/canonical.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::cmd {
namespace {

struct RecordFlags {
    std::string sandbox, policy, contract;
    std::string output = "text";
};

StatusOr<DesignRecord> OfSandbox(const ClientOptions& client, const std::string& id) {
    SK_ASSIGN_OR_RETURN(api::Channel channel, ConnectAgent(client));
    api::Message question;
    question.mutable_inspect()->set_id(id);
    SK_ASSIGN_OR_RETURN(const api::Message answer, Ask(channel, question));
    if (answer.inspect_reply().record().empty()) return absl::FailedPreconditionError("it was started by an earlier agent: give its --policy and --contract");
    DesignRecord record;
    for (const api::RecordRow& row : answer.inspect_reply().record()) record.emplace_back(row.name(), row.value());
    return record;
}

StatusOr<DesignRecord> OfFiles(const ClientOptions& client, const RecordFlags& flags) {
    const StatusOr<Config> loaded_config = LoadConfig(client.config_path, client.config_path != kDefaultConfigPath);
    if (!loaded_config.ok() && !absl::IsPermissionDenied(loaded_config.status())) return loaded_config.status();
    const Config config = loaded_config.ok() ? *loaded_config : Config();
    contract::ToolContract contract;
    RecordFacts facts;
    std::string policy = flags.policy;
    if (!flags.contract.empty()) {
        SK_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.contract, policy::kMaxYamlBytes));
        SK_ASSIGN_OR_RETURN(contract, contract::ParseOne(flags.contract, text));
        if (contract.tool_class == contract::ToolClass::kInProcess) return absl::InvalidArgumentError("class in-process: no sandbox is made for it");
        facts.contract = &contract;
        facts.contract_sha256 = Sha256Hex(text);
        if (policy.empty()) policy = IsPolicyFile(contract.policy) && contract.policy.front() != '/' ? absl::StrCat(flags.contract.substr(0, flags.contract.rfind('/') + 1), contract.policy) : contract.policy;
    }
    const bool is_file = IsPolicyFile(policy) || access(policy.c_str(), F_OK) == 0;
    const LoadedPolicies loaded = LoadPolicies(is_file ? std::vector<std::string>{policy} : std::vector<std::string>{}, {}, config.policy_dirs);
    if (is_file && loaded.policies.size() != 1) return absl::InvalidArgumentError(absl::StrCat(policy, ": ", loaded.policies.size(), " policies in this file, and one is needed"));
    SK_ASSIGN_OR_RETURN(const policy::ResolvedPolicy resolved, loaded.library.Resolve(is_file ? loaded.policies[0].name : policy));
    facts.policy = &resolved;
    facts.policy_hash = Sha256Hex(policy::CanonicalText(resolved));
    facts.config = &config;
    return MakeDesignRecord(facts);
}

Status Record(const ClientOptions& client, const RecordFlags& flags) {
    if (flags.sandbox.empty() == (flags.policy.empty() && flags.contract.empty())) return absl::InvalidArgumentError("record takes a sandbox, or --policy and --contract");
    SK_ASSIGN_OR_RETURN(const DesignRecord record, flags.sandbox.empty() ? OfFiles(client, flags) : OfSandbox(client, flags.sandbox));
    const std::string title = !flags.sandbox.empty() ? flags.sandbox : !flags.contract.empty() ? flags.contract : flags.policy;
    return WriteAll(STDOUT_FILENO, flags.output == "json" ? RecordJson(record) : flags.output == "markdown" ? RecordMarkdown(title, record) : RecordText(record));
}

}  // namespace

void AddRecordCommand(CLI::App& app, ClientOptions& client, int& exit_code) {
    auto flags = std::make_shared<RecordFlags>();  // lives as long as the callback
    CLI::App* command = app.add_subcommand("record", "The design record in ten lines: what runs, under which policy, what it may reach and write, who ends it, what is kept");
    command->add_option("SANDBOX", flags->sandbox, "The id of one that runs, or the beginning of it");
    command->add_option("--policy,-p", flags->policy, "Of a policy: a file or a name");
    command->add_option("--contract", flags->contract, "Of a contract, with the policy that it names");
    command->add_option("-o,--output", flags->output, "text, json or markdown")->check(CLI::IsMember({"text", "json", "markdown"}));
    command->callback([flags, &client, &exit_code] {
        const Status status = Record(client, *flags);
        exit_code = status.ok() ? 0 : Complain(status);
    });
}

}  // namespace stockade::cmd
