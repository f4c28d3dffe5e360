#include "userspace/cmd/policy_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/client.h"
#include "userspace/cmd/policy_run.h"

namespace stockade {
namespace {

using cmd::PolicyArgs;
using cmd::PolicyOutput;

// The questions of `explain` as flags give them; uid goes with the connections.
struct Questions {
    std::vector<std::string> exec, map, read, write, connect, unix_socket, bind, dns;
    std::optional<uint32_t> uid;
};

struct PolicyFlags {
    PolicyArgs args;
    Questions questions;
    std::vector<std::string> dirs;
    std::string output = "text";
};

// What `stockade run` would find. A configuration that only root may read is no reason to refuse.
Status FindDirs(const cmd::ClientOptions& client, PolicyFlags& flags) {
    for (const std::string& dir : flags.dirs) {
        if (!dir.empty()) flags.args.dirs.push_back(dir);
    }
    if (!flags.dirs.empty()) return absl::OkStatus();
    const StatusOr<cmd::Config> config =
        cmd::LoadConfig(client.config_path, client.config_path != cmd::kDefaultConfigPath);
    if (!config.ok() && !absl::IsPermissionDenied(config.status())) return config.status();
    flags.args.dirs = (config.ok() ? *config : cmd::Config()).policy_dirs;
    return absl::OkStatus();
}

int Finish(int status, const PolicyOutput& io) {
    (void)WriteAll(STDERR_FILENO, io.err);  // nobody is left to tell when this fails
    const Status written = WriteAll(STDOUT_FILENO, io.out);
    if (written.ok()) return status;
    (void)cmd::Complain(Annotate(written, "standard output"));
    return cmd::kPolicyUsage;
}

void AddCommonFlags(CLI::App& command, PolicyFlags& flags, bool root) {
    command.add_option("-o,--output", flags.output, "text or json")->check(CLI::IsMember({"text", "json"}));
    command.add_option("--with", flags.args.with, "a file with policies that `extends` names");
    command
        .add_option("--dir", flags.dirs,
                    "directory of policies by name and for `extends`, in place of the configuration's "
                    "policy_dirs (may be repeated; '' for none)")
        ->expected(1)
        ->take_all();
    if (root)
        command.add_option("--root", flags.args.root,
                           "directory whose symbolic links are followed, or '' for none");
}

void Collect(const Questions& questions, PolicyArgs& args) {
    const std::pair<policy::CaseKind, const std::vector<std::string>*> kAll[] = {
        {policy::CaseKind::kExec, &questions.exec},       {policy::CaseKind::kMap, &questions.map},
        {policy::CaseKind::kRead, &questions.read},       {policy::CaseKind::kWrite, &questions.write},
        {policy::CaseKind::kConnect, &questions.connect}, {policy::CaseKind::kUnix, &questions.unix_socket},
        {policy::CaseKind::kBind, &questions.bind},       {policy::CaseKind::kDns, &questions.dns}};
    for (const auto& [kind, objects] : kAll) {
        for (const std::string& object : *objects) {
            policy::TestCase question;
            question.kind = kind;
            question.object = object;
            if (kind == policy::CaseKind::kConnect) question.uid = questions.uid;
            args.questions.push_back(std::move(question));
        }
    }
}

using Run = int (*)(const PolicyArgs&, PolicyOutput&);

void SetCallback(CLI::App& command, const cmd::ClientOptions& client, const std::shared_ptr<PolicyFlags>& flags,
                 Run run, int& exit_code) {
    command.callback([flags, run, &client, &exit_code] {
        if (const Status found = FindDirs(client, *flags); !found.ok()) {
            (void)cmd::Complain(found);
            exit_code = cmd::kPolicyUsage;
            return;
        }
        flags->args.json = flags->output == "json";
        Collect(flags->questions, flags->args);
        PolicyOutput io;
        exit_code = Finish(run(flags->args, io), io);
    });
}

void AddExplain(CLI::App& policy, const cmd::ClientOptions& client, const std::shared_ptr<PolicyFlags>& flags,
                int& exit_code) {
    CLI::App* explain = policy.add_subcommand("explain", "Which rule decides: exit 0 allowed, 1 refused");
    explain->add_option("--policy", flags->args.policy, "a file, or the name of a policy")->required();
    CLI::Option_group* asked = explain->add_option_group("questions");
    const auto path = CLI::Validator(
        [](std::string& p) {
            return p.substr(0, 1) == "/" ? std::string() : absl::StrCat(p, ": not an absolute path");
        },
        "PATH");
    asked->add_option("--exec", flags->questions.exec, "executing a file")->check(path);
    asked->add_option("--map", flags->questions.map, "mapping a file as code")->check(path);
    asked->add_option("--read", flags->questions.read, "reading a file")->check(path);
    asked->add_option("--write", flags->questions.write, "writing, creating or removing a file")->check(path);
    asked->add_option("--connect", flags->questions.connect, "connecting to ADDRESS:PORT");
    asked->add_option("--unix", flags->questions.unix_socket,
                      "connecting to a unix socket: path, or '@name'");
    asked->add_option("--dns", flags->questions.dns, "resolving a host name");
    asked->add_option("--bind", flags->questions.bind, "binding ADDRESS:PORT");
    asked->require_option(1, 0);
    explain->add_option("--as-uid", flags->questions.uid, "the uid that connects, as seen inside");
    AddCommonFlags(*explain, *flags, true);
    SetCallback(*explain, client, flags, cmd::PolicyExplain, exit_code);
}

}  // namespace

void AddPolicyCommand(CLI::App& app, const cmd::ClientOptions& client, int& exit_code) {
    auto flags = std::make_shared<PolicyFlags>();  // lives as long as the callbacks
    CLI::App* policy =
        app.add_subcommand("policy", "Check, explain, test and compare policies; needs no root");
    policy->require_subcommand(1);

    CLI::App* check = policy->add_subcommand("check", "All errors and warnings of these files");
    check->add_option("FILE", flags->args.files)->required();
    check->add_flag("--strict", flags->args.strict, "exit 1 for warnings, too");
    AddCommonFlags(*check, *flags, false);
    SetCallback(*check, client, flags, cmd::PolicyCheck, exit_code);

    AddExplain(*policy, client, flags, exit_code);

    CLI::App* test =
        policy->add_subcommand("test", "Run the cases under `tests:` and of SandboxPolicyTest documents");
    test->add_option("FILE", flags->args.files)->required();
    AddCommonFlags(*test, *flags, true);
    SetCallback(*test, client, flags, cmd::PolicyTestCases, exit_code);

    CLI::App* diff = policy->add_subcommand("diff", "What becomes allowed and what refused from A to B");
    diff->add_option("POLICY", flags->args.files, "two files or names")->required()->expected(2);
    AddCommonFlags(*diff, *flags, false);
    SetCallback(*diff, client, flags, cmd::PolicyDiff, exit_code);

    CLI::App* learn = policy->add_subcommand("learn", "Propose a policy from what runs under `mode: observe` did");
    learn->footer("  stockade run -p observer.yaml --events run.jsonl -- python3 tool.py   (docs/policy.md has observer.yaml)\n"
                  "  stockade policy learn run.jsonl --name my-tool >my-tool.yaml\n"
                  "  stockade policy test my-tool.yaml && stockade run -p my-tool.yaml -- python3 tool.py\n\n"
                  "Exit status: 0 proposed, 1 proposed and something that was seen is not allowed by it (on standard error), 2 nothing to learn from.");
    learn->add_option("EVENTS", flags->args.files, "JSON lines as they were exported; - is standard input")->required();
    learn->add_option("--name", flags->args.policy, "metadata.name of the policy")->required();
    learn->add_option("--session", flags->args.session, "Only of this session, or of the sandbox with this id");
    SetCallback(*learn, client, flags, cmd::PolicyLearn, exit_code);
}

}  // namespace stockade
