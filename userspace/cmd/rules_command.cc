#include "userspace/cmd/rules_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "userspace/base/fd.h"
#include "userspace/cmd/client.h"
#include "userspace/cmd/rules_run.h"

namespace stockade::cmd {
namespace {

struct RulesFlags {
    RulesArgs args;
    std::string output = "text";
};

int FinishRules(int status, const RulesOutput& io) {
    (void)WriteAll(STDERR_FILENO, io.err);  // nobody is left to tell when this fails
    const Status written = WriteAll(STDOUT_FILENO, io.out);
    if (written.ok()) return status;
    (void)Complain(Annotate(written, "standard output"));
    return kRulesUsage;
}

using RunRules = int (*)(const RulesArgs&, RulesOutput&);

// Where `check --policy NAME` looks. A configuration that only root may read is no reason to refuse.
void FindPolicyDirs(const ClientOptions& client, RulesArgs& args) {
    if (args.policies.empty()) return;
    const StatusOr<Config> config = LoadConfig(client.config_path, client.config_path != kDefaultConfigPath);
    args.policy_dirs = (config.ok() ? *config : Config()).policy_dirs;
}

void OnRun(CLI::App& command, const ClientOptions& client, const std::shared_ptr<RulesFlags>& flags,
           RunRules run, int& exit_code) {
    command.add_option("-o,--output", flags->output, "text or json")->check(CLI::IsMember({"text", "json"}));
    command.callback([flags, run, &client, &exit_code] {
        flags->args.json = flags->output == "json";
        FindPolicyDirs(client, flags->args);
        RulesOutput io;
        exit_code = FinishRules(run(flags->args, io), io);
    });
}

}  // namespace

void AddRulesCommand(CLI::App& app, const ClientOptions& client, int& exit_code) {
    auto flags = std::make_shared<RulesFlags>();  // lives as long as the callbacks
    RulesArgs& args = flags->args;
    CLI::App* rules =
        app.add_subcommand("rules", "Check, test, replay and explain detection rules; needs no root");
    rules->require_subcommand(1);
    const char* const kPaths = "files, or directories of *.yaml and *.yml";

    CLI::App* check = rules->add_subcommand("check", "All errors and warnings of these rules");
    check->add_option("PATH", args.paths, kPaths)->required();
    check->add_flag("--strict", args.strict, "exit 1 for warnings, too");
    check
        ->add_option("--policy", args.policies,
                     "a policy, by file or name: warn where its `record:` leaves rules without events (may "
                     "be repeated)")
        ->expected(1)
        ->take_all();
    OnRun(*check, client, flags, RulesCheck, exit_code);

    CLI::App* test = rules->add_subcommand("test", "Run the samples under `tests:` of these rules, as TAP");
    test->add_option("PATH", args.paths, kPaths)->required();
    test->add_option("--junit", args.junit, "write JUnit XML to this file, too");
    OnRun(*test, client, flags, RulesTest, exit_code);

    CLI::App* replay = rules->add_subcommand(
        "replay", "What these rules find in exported events: exit 0 nothing, 1 something");
    CLI::Option_group* from = replay->add_option_group("what is replayed");
    from->add_option("EVENTS", args.events, "JSON lines as they were exported; - is standard input");
    from->add_option("--pcap", args.pcap,
                     "a pcap or pcapng file: its connections and DNS queries, each client as a sandbox");
    from->require_option(1);
    replay->add_option("--rules", args.paths, kPaths)->required();
    replay->add_flag("--time", args.timing, "what each rule costs by itself");
    OnRun(*replay, client, flags, RulesReplay, exit_code);

    CLI::App* explain =
        rules->add_subcommand("explain", "Which part of a rule an event matches: exit 0 it matches, 1 not");
    explain->add_option("EVENT", args.events, "a file with the event as JSON; - is standard input")
        ->required();
    explain->add_option("--rules", args.paths, kPaths)->required();
    explain->add_option("--rule", args.rule, "the rule's id, name or title")->required();
    OnRun(*explain, client, flags, RulesExplain, exit_code);

    CLI::App* list = rules->add_subcommand("list", "These rules, with level and log source");
    list->add_option("PATH", args.paths, kPaths)->required();
    OnRun(*list, client, flags, RulesList, exit_code);
}

}  // namespace stockade::cmd
