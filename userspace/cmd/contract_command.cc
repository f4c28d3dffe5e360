#include "userspace/cmd/contract_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/contract_words.h"
#include "userspace/contract/mcp.h"

namespace stockade::cmd {
namespace {

struct ContractFlags {
    std::vector<std::string> files;
    std::string file;
    std::string tools;
    std::string output = "text";
    bool as_job = false;
    contract::JobRequest job;
    bool strict = false;
};

int Finish(int status, const ContractOutput& io) {
    (void)WriteAll(STDERR_FILENO, io.err);  // nobody is left to tell when this fails
    const Status written = WriteAll(STDOUT_FILENO, io.out);
    if (written.ok()) return status;
    (void)Complain(Annotate(written, "standard output"));
    return kContractUsage;
}

std::vector<std::string> PolicyDirs(const ClientOptions& client) {
    const StatusOr<Config> config = LoadConfig(client.config_path, false);
    return (config.ok() ? *config : Config()).policy_dirs;  // a configuration that only root may read is no reason to refuse
}

StatusOr<std::string> ReadWords(const std::string& file) {
    if (file == "-") return ReadAll(STDIN_FILENO, contract::kMaxToolListBytes);
    return ReadFile(file, contract::kMaxToolListBytes);
}

// The command, with "--" before it or without.
std::vector<std::string> CommandOf(const CLI::App& app, const ClientOptions& client) { return client.separated ? client.command : app.remaining(); }

int Init(const ContractFlags& flags, ContractOutput& io) {
    const StatusOr<std::string> text = ReadWords(flags.tools);
    const StatusOr<contract::FirstContracts> made = text.ok() ? contract::ContractsFromMcp(*text) : text.status();
    if (!made.ok()) {
        io.err = absl::StrCat("stockade: contract init: ", flags.tools, ": ", made.status().message(), "\n");
        return kContractUsage;
    }
    io.out = made->yaml;
    io.err = absl::StrCat(made->sandboxed, " tools of class sandbox, ", made->in_process, " of class in-process by their own word: decide what says TO DECIDE, then `stockade contract check`\n");
    return 0;
}

}  // namespace

void AddContractCommand(CLI::App& app, const ClientOptions& client, int& exit_code) {
    auto flags = std::make_shared<ContractFlags>();  // lives as long as the callbacks
    CLI::App* contract = app.add_subcommand("contract", "Check, explain and render the contracts of tools, and make first ones; needs no root");
    contract->require_subcommand(1);
    const auto add_output = [&flags](CLI::App* command) {
        command->add_option("-o,--output", flags->output, "text or json")->check(CLI::IsMember({"text", "json"}));
    };

    CLI::App* check = contract->add_subcommand("check", "All errors of these files, and what their policies would refuse them");
    check->add_option("FILE", flags->files)->required();
    check->add_flag("--strict", flags->strict, "exit 1 for warnings, too");
    add_output(check);
    check->callback([flags, &client, &exit_code] {
        ContractOutput io;
        const int status = ContractCheck(flags->files, PolicyDirs(client), flags->strict, flags->output == "json", io);
        exit_code = Finish(status, io);
    });

    CLI::App* explain = contract->add_subcommand("explain", "What a contract lets happen; with a command: whether it may be started");
    explain->add_option("FILE", flags->file)->required();
    add_output(explain);
    explain->prefix_command();
    explain->footer("  stockade contract explain csv.yaml\n  stockade contract explain csv.yaml python3 /in/job.py --fast\n\n"
                    "Exit status: 0 it may be started, 1 it is refused, 2 the file cannot be used.");
    explain->callback([flags, explain, &client, &exit_code] {
        ContractOutput io;
        const int status = ContractExplain(flags->file, CommandOf(*explain, client), flags->output == "json", io);
        exit_code = Finish(status, io);
    });

    CLI::App* render = contract->add_subcommand("render", "One call as a Kubernetes Job, in the form that the admission policies take");
    render->add_flag("--job", flags->as_job, "A Job (batch/v1); nothing else can be rendered")->required();
    render->add_option("FILE", flags->file)->required();
    render->add_option("--image", flags->job.image, "Image that has the program, with its digest: NAME@sha256:HEX")->required();
    render->add_option("--session", flags->job.session, "Label of what belongs together")->required();
    render->add_option("--trace", flags->job.trace, "W3C traceparent")->required();
    render->add_option("--runtime", flags->job.runtime, "RuntimeClass: gvisor (default), kata-qemu or runc");
    render->add_option("-n,--namespace", flags->job.space, "Default stockade-tools");
    render->add_option("--input", flags->job.input, "ConfigMap that is /in, where the contract has inputs");
    render->prefix_command();
    render->footer("  stockade contract render csv.yaml --job --image registry.example/csv@sha256:1c4e... --session s1 --trace 00-0af7...-01 \\\n"
                   "      --input csv-in /usr/bin/python3 /in/job.py | kubectl create -f -\n\n"
                   "Nobody is asked for approval, and nothing takes /out: that is for who dispatches the Job.\n"
                   "Exit status: 0 rendered, 1 the contract refuses the call, 2 it cannot be said in a Job.");
    render->callback([flags, render, &client, &exit_code] {
        ContractOutput io;
        flags->job.argv = CommandOf(*render, client);
        const int status = ContractRender(flags->file, flags->job, io);
        exit_code = Finish(status, io);
    });

    CLI::App* init = contract->add_subcommand("init", "First contracts from the tool list of an MCP server");
    init->add_option("--mcp", flags->tools, "The answer to tools/list, as JSON; - is standard input")->required();
    init->callback([flags, &exit_code] {
        ContractOutput io;
        const int status = Init(*flags, io);
        exit_code = Finish(status, io);
    });
}

}  // namespace stockade::cmd
