#include "userspace/cmd/gc_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/json.h"
#include "userspace/launch/native.h"
#include "userspace/sandbox/state_file.h"

namespace stockade::cmd {
namespace {

struct GcFlags {
    bool dry_run = false;
    bool json = false;
};

// Without an agent nobody else knows what belongs to whom; sandboxes whose keeper lives hold a lock, which is all that counts.
StatusOr<api::GcReply> WithoutAgent(const ClientOptions& client, bool dry_run) {
    if (geteuid() != 0) return absl::PermissionDeniedError("gc: no agent runs, and only root can look at what is left");
    SK_ASSIGN_OR_RETURN(const Config config, LoadConfig(client.config_path, client.config_path != kDefaultConfigPath));
    api::GcReply reply;
    const StatusOr<launch::CgroupHome> home = launch::OpenCgroupHome(config.cgroup_name);
    if (absl::IsNotFound(home.status())) return reply;  // no sandbox was ever made
    if (!home.ok()) return home.status();
    const launch::Leftovers left = launch::CleanLeftovers(*home, {.dry_run = dry_run, .is_known = {}});
    for (const std::string& what : left.found) reply.add_found(what);
    for (const std::string& what : left.failed) reply.add_failed(what);
    return reply;
}

StatusOr<api::GcReply> Collect(const ClientOptions& client, bool dry_run) {
    StatusOr<api::Channel> channel = ConnectAgent(client);
    if (absl::IsUnavailable(channel.status())) return WithoutAgent(client, dry_run);
    if (!channel.ok()) return channel.status();
    api::Message question;
    question.mutable_gc()->set_dry_run(dry_run);
    SK_ASSIGN_OR_RETURN(const api::Message answer, Ask(*channel, question));
    return answer.gc_reply();
}

// 0 nothing is left (any more), 1 something is.
StatusOr<int> Gc(const ClientOptions& client, const GcFlags& flags) {
    SK_ASSIGN_OR_RETURN(const api::GcReply reply, Collect(client, flags.dry_run));
    const int status = (flags.dry_run ? reply.found_size() : reply.failed_size()) > 0 ? 1 : 0;
    std::string text;
    if (flags.json) {
        std::vector<std::string> found, failed;
        for (const std::string& what : reply.found()) found.push_back(JsonString(what));
        for (const std::string& what : reply.failed()) failed.push_back(JsonString(what));
        text = JsonObject().Add("dry_run", flags.dry_run).AddRaw("found", JsonArray(found)).AddRaw("failed", JsonArray(failed)).Done() + "\n";
    } else {
        for (const std::string& what : reply.found()) absl::StrAppend(&text, flags.dry_run ? "left: " : "found: ", what, "\n");
        for (const std::string& what : reply.failed()) absl::StrAppend(&text, "not removed: ", what, "\n");
        if (reply.found().empty()) text = "nothing is left of ended sandboxes\n";
    }
    SK_RETURN_IF_ERROR(WriteAll(STDOUT_FILENO, text));
    return status;
}

}  // namespace

void AddGcCommand(CLI::App& app, ClientOptions& client, int& exit_code) {
    auto flags = std::make_shared<GcFlags>();  // lives as long as the callback
    CLI::App* command = app.add_subcommand("gc", "Remove what killed launchers have left: cgroups with their tasks, links, rules, state files");
    command->add_flag("--dry-run", flags->dry_run, "Only show what would be removed");
    command->add_option_function<std::string>("-o,--output", [flags](const std::string& value) { flags->json = value == "json"; }, "text or json")->check(CLI::IsMember({"text", "json"}));
    command->footer("The agent does the same every ten seconds, and at its start. Exit status: 0 nothing is left, 1 something is.");
    command->callback([flags, &client, &exit_code] {
        const StatusOr<int> status = Gc(client, *flags);
        exit_code = status.ok() ? *status : Complain(status.status());
    });
}

}  // namespace stockade::cmd
