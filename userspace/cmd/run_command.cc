#include "userspace/cmd/run_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "userspace/cmd/command_words.h"
#include "userspace/cmd/result_file.h"
#include "userspace/cmd/run_client.h"

namespace stockade::cmd {
namespace {

constexpr char kRunHelp[] =
    "Run a command in a sandbox that its policy confines in the kernel.\n\n"
    "  stockade run --policy rules/policies/python-tool.yaml -- python3 -c 'print(40+2)'\n"
    "  stockade run --policy my.yaml --in data --out results -- python3 /in/job.py\n\n"
    "The sandbox sees the host's programs and libraries read-only, /in, a private /tmp, and /out,\n"
    "from which regular files are copied to --out DIR at the end. The exit status is the command's\n"
    "own; 125: nothing was started; 126, 127: the command cannot be run; 128+n: ended by signal n;\n"
    "137 with a reason on standard error: killed by its policy, or by --timeout. What could not be\n"
    "written to --events or --result changes no status: the last lines on standard error, also\n"
    "with -q, say NOT WRITTEN.\n\n"
    "In --in and in a --bind with :rw the caller's files are the sandbox's own, where the file system\n"
    "can map ids. A read-only --bind shows the owners and modes that the host has: what only its\n"
    "owner may read there is not read inside.";

void AddFlags(CLI::App* run, RunFlags* flags) {
    run->add_option("--policy,-p", flags->policy, "Policy: a file (has a / or ends in .yaml) or a name");
    run->add_option("--session,-s", flags->session, "Label: the session that it belongs to");
    run->add_option("--tool", flags->tool, "Label: the tool that is run");
    run->add_option("--trace", flags->trace, "Label: W3C traceparent");
    run->add_option("--cause", flags->cause, "Label: the prompt or request that it is run for, as the caller names it");
    run->add_option("--label,-l", flags->labels, "Label K=V (may be repeated)")->expected(1)->take_all();
    run->add_option("--in", flags->in, "Directory shown read-only at /in");
    run->add_option("--out", flags->out, "Directory that files of /out are copied to at the end");
    run->add_option("--out-size", flags->out_size, "Size of /out (256MiB)");
    run->add_option("--bind", flags->binds,
                    "SOURCE[:TARGET][:rw] shown inside, read-only unless rw (may be repeated)")
        ->expected(1)
        ->take_all();
    run->add_option("--rootfs", flags->rootfs,
                    "Directory that takes the place of the host's /usr, /bin, ...");
    run->add_option("--runtime", flags->runtime, "native (runc, runsc and vm are not there yet)");
    run->add_option("--timeout", flags->timeout, "End it after so long: 30s, 5m");
    run->add_option("--events", flags->events,
                    "Write its events as JSON lines to a file, or - for standard output; the command's own "
                    "output then goes to standard error, and it gets no terminal");
    run->add_option("--result", flags->result,
                    "Write how it ended as JSON to a file; it holds a record from the start on");
    run->add_option("--env,-e", flags->env, "K=V, or K to pass the caller's (may be repeated)")
        ->expected(1)
        ->take_all();
    run->add_option("--workdir,-w", flags->workdir, "Directory inside to start in (/)");
    run->add_option("--seccomp", flags->seccomp, "Seccomp profile in OCI format in place of the default one");
    run->add_option("--require", flags->require, "lsm: fail unless every verdict prevents")
        ->check(CLI::IsMember({"lsm", "signal"}));
    run->add_option("--contract", flags->contract,
                    "ToolContract: which command and arguments, policy, inputs, outputs and limits (docs/contract.md)");
    run->add_option("--approval", flags->approval,
                    "Where a contract's approval is asked for: file:PATH, unix:PATH or exec:CMD; nothing is made before the answer");
    run->add_flag("--no-tty", flags->no_tty, "No terminal inside, even when the caller has one");
    run->add_flag("--quiet,-q", flags->quiet,
                  "No summary of what was refused; why it was killed or not run is said, and what was not "
                  "copied or written");
}

// Flags of the caller with nothing in them: `--timeout "$T"` without a T.
std::vector<std::string> EmptyFlags(const CLI::App& run) {
    std::vector<std::string> empty;
    for (const CLI::Option* option : run.get_options()) {
        const auto& values = option->results();
        if (option->get_expected_min() == 0 || std::find(values.begin(), values.end(), "") == values.end()) {
            continue;
        }
        empty.push_back("--" + option->get_lnames().front());
    }
    return empty;
}

}  // namespace

int ComplainOfWords(const ClientOptions& client, const Status& why) {
    const int exit_code = Complain(why);
    for (const std::string& path : client.results) {
        StatusOr<ResultFile> file = ResultFile::Open(path);
        const Status written = file.ok() ? file->WriteFailed(why) : file.status();
        if (!written.ok()) (void)Complain(written);
    }
    return exit_code;
}

void AddRunCommand(CLI::App& app, const ClientOptions& client, int& exit_code) {
    auto flags = std::make_shared<RunFlags>();
    CLI::App* run = app.add_subcommand("run", kRunHelp);
    AddFlags(run, flags.get());
    run->prefix_command();
    run->footer("Everything from CMD on is the command; put -- before it when it starts with a dash.");
    run->callback([run, flags, &client, &exit_code] {
        flags->command = run->remaining();
        flags->empty = EmptyFlags(*run);
        // "run CMD -- ARG": the separator is the command's own.
        const bool separated = client.separated && flags->command.empty();
        if (client.separated && !separated) flags->command.push_back("--");
        flags->command.insert(flags->command.end(), client.command.begin(), client.command.end());
        if (flags->command.empty()) {
            exit_code = ComplainOfWords(
                client,
                absl::InvalidArgumentError("run: no command is given: stockade run [flags] -- CMD ARG..."));
            return;
        }
        if (!separated && flags->command.front().front() == '-') {
            exit_code = ComplainOfWords(client, absl::InvalidArgumentError(absl::StrCat(
                                                    "run: ", UnknownFlag(*run, flags->command.front()),
                                                    " (see stockade run --help)")));
            return;
        }
        RunClient session(client, *flags);
        const StatusOr<int> status = session.Run();
        exit_code = status.ok() ? *status : Complain(status.status());
    });
}

}  // namespace stockade::cmd
