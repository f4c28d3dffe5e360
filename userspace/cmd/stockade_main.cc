// stockade: the command line.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/agent_version.h"
#include "userspace/cmd/client.h"
#include "userspace/cmd/command_words.h"
#include "userspace/cmd/completion.h"
#include "userspace/cmd/contract_command.h"
#include "userspace/cmd/control_commands.h"
#include "userspace/cmd/dns_command.h"
#include "userspace/cmd/doctor_command.h"
#include "userspace/cmd/gc_command.h"
#include "userspace/cmd/k8s_command.h"
#include "userspace/cmd/policy_command.h"
#include "userspace/cmd/query_commands.h"
#include "userspace/cmd/record_command.h"
#include "userspace/cmd/rules_command.h"
#include "userspace/cmd/run_command.h"
#include "userspace/cmd/timeline_command.h"
#include "userspace/cmd/verify_command.h"

namespace stockade::cmd {
namespace {

constexpr char kHelp[] =
    "stockade: run untrusted tools in sandboxes whose allowlists are enforced in the kernel.\n\n"
    "Start here:\n"
    "  stockade doctor                         what this kernel can enforce\n"
    "  stockade run -p rules/policies/python-tool.yaml -- python3 -c 'print(1)'\n"
    "                                          a sandbox, and what it was refused\n"
    "  stockade policy check my.yaml           a policy of your own\n"
    "  stockade rules test rules/detections    what is found in events, and a start for rules of your own";

}  // namespace

// CLI11 takes the words after "--" for positionals of the outermost command; those of `run` and `contract` are a
// command's own and are kept from it. Returns how many words are left to parse.
int TakeCommand(int argc, char** argv, ClientOptions* client) {
    bool has_command = false;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "run" || word == "contract") has_command = true;
        if (word != "--") continue;
        if (!has_command) break;
        client->separated = true;
        client->command.assign(argv + i + 1, argv + argc);
        return i;
    }
    return argc;
}

void AddOtherCommands(CLI::App& app, ClientOptions& client, int& exit_code) {
    AddQueryCommands(app, client, exit_code);
    AddControlCommands(app, client, exit_code);
    AddPolicyCommand(app, client, exit_code);
    AddContractCommand(app, client, exit_code);
    AddGcCommand(app, client, exit_code);
    AddRecordCommand(app, client, exit_code);
    AddRulesCommand(app, client, exit_code);
    AddDnsCommand(app, exit_code);
    AddDoctorCommand(app, client, exit_code);
    AddK8sCommand(app, exit_code);
    AddTimelineCommand(app, exit_code);
    AddVerifyCommand(app, exit_code);
    AddCompletionCommand(app, exit_code);
}

int Main(int argc, char** argv) {
    CLI::App app(kHelp, "stockade");
    app.require_subcommand(1);
    ClientOptions client;
    argc = TakeCommand(argc, argv, &client);
    int exit_code = 0;
    app.add_option("--config", client.config_path,
                   "Configuration (default " + std::string(kDefaultConfigPath) + ")");
    app.add_option("--socket", client.socket, "The agent's socket");
    AddRunCommand(app, client, exit_code);
    // A sandbox's start does not wait for the words of the others, the kinds of events among them.
    if (!IsCommand(app, "run", {argv + 1, argv + argc})) AddOtherCommands(app, client, exit_code);
    app.set_version_flag("--version,-V", absl::StrCat("stockade ", kVersion));
    std::vector<std::string> args = Tidied(app, {argv + 1, argv + argc});
    if (const Status known = CheckCommandWords(app, args); !known.ok()) return Complain(known);
    client.results = ValuesOf(app, "run", "--result", args, client.separated);
    std::reverse(args.begin(), args.end());  // CLI11 takes them from the end
    try {
        app.parse(std::move(args));
    } catch (const CLI::Success& help) {
        return app.exit(help);
    } catch (const CLI::ParseError& error) {
        return ComplainOfWords(client, absl::InvalidArgumentError(ParseComplaint(app, error)));
    }
    return exit_code;
}

}  // namespace stockade::cmd

int main(int argc, char** argv) {
    if (!stockade::FillStandardStreams()) return stockade::cmd::kOwnFailure;
    return stockade::cmd::Main(argc, argv);
}
