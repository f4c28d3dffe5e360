#include "userspace/cmd/query_commands.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <google/protobuf/descriptor.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "userspace/cmd/agent_version.h"
#include "userspace/cmd/json.h"
#include "userspace/model/json.h"
#include "userspace/model/names.h"
#include "userspace/model/text.h"
#include "userspace/policy/nearest.h"

namespace stockade::cmd {
namespace {

std::string Printable(absl::string_view bytes, size_t max = 4096) {
    std::string out;
    (void)model::AppendEscaped(bytes.substr(0, max), &out);
    return out;
}

std::string Command(const api::SandboxRow& row, size_t max) {
    return Printable(row.command(), max) + (row.command_cut() || row.command().size() > max ? "..." : "");
}

std::string Age(uint64_t ns) {
    const uint64_t seconds = ns / 1'000'000'000;
    if (seconds < 60) return absl::StrCat(seconds, "s");
    if (seconds < 3600) return absl::StrCat(seconds / 60, "m", seconds % 60, "s");
    return absl::StrCat(seconds / 3600, "h", seconds / 60 % 60, "m");
}

std::string ConditionsJson(const google::protobuf::RepeatedPtrField<api::Condition>& conditions) {
    std::vector<std::string> rows;
    for (const api::Condition& condition : conditions) {
        JsonObject row;
        row.Add("type", condition.type()).Add("status", condition.status()).Add("reason", condition.reason());
        rows.push_back(row.Add("message", condition.message()).Done());
    }
    return JsonArray(rows);
}

std::string ConditionsText(const google::protobuf::RepeatedPtrField<api::Condition>& conditions) {
    std::string text;
    for (const api::Condition& condition : conditions) {
        absl::StrAppendFormat(&text, "  %-16s %-6s %-17s %s\n", condition.type(), condition.status(),
                              condition.reason(), Printable(condition.message()));
    }
    return text;
}

JsonObject RowJson(const api::SandboxRow& row) {
    JsonObject labels;
    for (const auto& [key, value] : row.labels().free()) labels.Add(key, value);
    JsonObject out;
    out.Add("id", row.id()).Add("state", row.state()).Add("policy", row.policy());
    out.Add("policy_hash", row.policy_hash()).Add("mode", row.mode()).Add("backend", row.backend());
    out.Add("runtime", row.runtime()).Add("pid", row.pid()).Add("tasks", row.tasks());
    out.Add("violations", row.violations()).Add("age_ns", row.age_ns());
    out.Add("session", row.labels().session())
        .Add("tool", row.labels().tool())
        .Add("trace", row.labels().trace());
    out.AddRaw("labels", labels.Done()).AddRaw("conditions", ConditionsJson(row.conditions()));
    out.Add("owner_uid", row.owner_uid());
    return out.Add("command", row.command()).Add("command_truncated", row.command_cut());
}

StatusOr<api::Message> AskAgent(const ClientOptions& client, const api::Message& question) {
    SK_ASSIGN_OR_RETURN(api::Channel channel, ConnectAgent(client));
    return Ask(channel, question);
}

// All pages of the list.
StatusOr<std::vector<api::SandboxRow>> AskPs(const ClientOptions& client) {
    SK_ASSIGN_OR_RETURN(api::Channel channel, ConnectAgent(client));
    std::vector<api::SandboxRow> rows;
    api::Message question;
    question.mutable_ps();
    while (true) {
        SK_ASSIGN_OR_RETURN(const api::Message answer, Ask(channel, question));
        const api::PsReply& reply = answer.ps_reply();
        rows.insert(rows.end(), reply.rows().begin(), reply.rows().end());
        if (!reply.more() || reply.rows().empty()) return rows;
        question.mutable_ps()->set_after(rows.back().id());
    }
}

Status Ps(const ClientOptions& client, bool json) {
    // An empty list would say that none runs; without an agent nobody knows.
    SK_ASSIGN_OR_RETURN(const std::vector<api::SandboxRow> listed, AskPs(client));
    if (json) {
        std::vector<std::string> rows;
        for (const api::SandboxRow& row : listed) rows.push_back(RowJson(row).Done());
        return WriteAll(STDOUT_FILENO, JsonArray(rows) + "\n");
    }
    std::string text =
        absl::StrFormat("%-30s %-12s %-22s %-16s %-8s %-7s %5s %5s %7s  %s\n", "SANDBOX", "STATE",
                        "CONDITION", "POLICY", "MODE", "BACKEND", "TASKS", "VIOL", "AGE", "COMMAND");
    for (const api::SandboxRow& row : listed) {
        absl::StrAppendFormat(&text, "%-30s %-12s %-22s %-16s %-8s %-7s %5d %5d %7s  %s\n", row.id(),
                              row.state(), row.headline(), Printable(row.policy()), row.mode(), row.backend(),
                              row.tasks(), row.violations(), Age(row.age_ns()), Command(row, 60));
    }
    return WriteAll(STDOUT_FILENO, text);
}

std::string ProcessesJson(const api::InspectReply& reply) {
    std::vector<std::string> rows;
    for (const api::ProcessRow& process : reply.processes()) {
        JsonObject row;
        row.Add("pid", process.pid()).Add("ppid", process.ppid()).Add("state", process.state());
        row.Add("start_boot_ns", process.start_boot_ns())
            .Add("comm", process.comm())
            .Add("command", process.command());
        rows.push_back(row.Done());
    }
    return JsonArray(rows);
}

Status Inspect(const ClientOptions& client, const std::string& id, bool json) {
    api::Message question;
    question.mutable_inspect()->set_id(id);
    SK_ASSIGN_OR_RETURN(const api::Message answer, AskAgent(client, question));
    const api::InspectReply& reply = answer.inspect_reply();
    JsonObject coverage;
    for (const std::string& line : reply.attestation().coverage()) {
        const size_t colon = line.find(": ");
        if (colon != std::string::npos) coverage.Add(line.substr(0, colon), line.substr(colon + 2));
    }
    if (json) {
        JsonObject out = RowJson(reply.row());
        out.Add("cgroup", reply.cgroup()).Add("slot", reply.slot()).Add("generation", reply.generation());
        out.Add("shim_pid", reply.shim_pid()).AddRaw("coverage", coverage.Done());
        return WriteAll(STDOUT_FILENO, out.AddRaw("processes", ProcessesJson(reply)).Done() + "\n");
    }
    const api::SandboxRow& row = reply.row();
    std::string text =
        absl::StrCat("sandbox   ", row.id(), "\nstate     ", row.state(), "\ncommand   ", Command(row, 4096),
                     "\npolicy    ", Printable(row.policy()), " (", row.policy_hash().substr(0, 12), ", ",
                     row.mode(), ")\nbackend   ", row.backend(), "\nsession   ",
                     Printable(row.labels().session()), "\ntool      ", Printable(row.labels().tool()),
                     "\ncgroup    ", reply.cgroup(), "\nviolations ", row.violations(), "\n\nprocesses\n");
    for (const api::ProcessRow& process : reply.processes()) {
        absl::StrAppendFormat(&text, "  %7d %7d %s  %s\n", process.pid(), process.ppid(), process.state(),
                              Printable(process.command().empty() ? process.comm() : process.command(), 100));
    }
    absl::StrAppend(&text, "\nconditions\n", ConditionsText(row.conditions()), "\ncoverage\n");
    for (const std::string& line : reply.attestation().coverage()) absl::StrAppend(&text, "  ", line, "\n");
    return WriteAll(STDOUT_FILENO, text);
}

Status Kill(const ClientOptions& client, const std::string& id, const std::string& reason, bool json) {
    api::Message question;
    question.mutable_kill()->set_id(id);
    question.mutable_kill()->set_reason(reason);
    SK_ASSIGN_OR_RETURN(const api::Message answer, AskAgent(client, question));
    const api::KillReply& reply = answer.kill_reply();
    if (json) {
        JsonObject out;
        out.Add("id", reply.id()).Add("pending", reply.pending());
        out.Add("kill_to_empty_ns", reply.pending() ? 0 : reply.times().empty() - reply.times().kill_asked());
        SK_RETURN_IF_ERROR(WriteAll(STDOUT_FILENO, out.Done() + "\n"));
    } else if (!reply.pending()) {
        SK_RETURN_IF_ERROR(WriteAll(STDOUT_FILENO, absl::StrCat(reply.id(), " killed\n")));
    }
    if (!reply.pending()) return absl::OkStatus();
    std::string pids;
    for (const int pid : reply.left()) absl::StrAppend(&pids, " ", pid);
    return absl::DeadlineExceededError(
        absl::StrCat("kill pending: the kernel cannot end these yet (state D):", pids));
}

struct EventsFlags {
    bool follow = false;
    std::string session;
    std::string sandbox;
    std::vector<std::string> kinds;
    std::string tool;
    std::string policy;
    std::vector<std::string> verdicts;
};

// What the agent was not asked to leave out.
bool Wanted(const EventsFlags& flags, const v1::Event& event) {
    if (!flags.tool.empty() && event.sandbox().tool() != flags.tool) return false;
    if (!flags.policy.empty() && event.policy().name() != flags.policy) return false;
    return flags.verdicts.empty() ||
           std::find(flags.verdicts.begin(), flags.verdicts.end(), event.verdict()) != flags.verdicts.end();
}

std::string EventText(const v1::Event& event) {
    std::string what = event.reason();
    if (what.empty() && event.has_lifecycle())
        what = absl::StrCat(event.lifecycle().op(), " ", event.lifecycle().detail());
    if (event.has_lost())
        what = absl::StrCat(event.lost().count(), " events are missing: ", event.lost().cause());
    if (what.empty() && event.has_exec()) what = event.exec().path();
    if (what.empty() && event.has_file()) what = absl::StrCat(event.file().op(), " ", event.file().path());
    const absl::Time time =
        absl::FromUnixSeconds(event.time().seconds()) + absl::Nanoseconds(event.time().nanos());
    return absl::StrFormat("%s %s %-10s %-12s %6d %-15s %s\n",
                           absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone()),
                           event.sandbox().id(), event.kind(), event.verdict(), event.process().pid(),
                           event.process().comm(), what);
}

std::vector<std::string> Verdicts() {
    std::vector<std::string> words;
    for (const model::Name& name : model::Verdicts()) words.emplace_back(name.text);
    return words;
}

// Kinds are the payloads.
std::vector<std::string> Kinds() {
    std::vector<std::string> known;
    const google::protobuf::OneofDescriptor* payload = v1::Event::descriptor()->FindOneofByName("payload");
    for (int i = 0; i < payload->field_count(); ++i) known.push_back(payload->field(i)->name());
    return known;
}

// One that does not exist would be waited for without end.
Status CheckKinds(const std::vector<std::string>& kinds) {
    const std::vector<std::string> known = Kinds();
    for (const std::string& kind : kinds) {
        if (std::find(known.begin(), known.end(), kind) != known.end()) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("--kind: there is no kind of event ", kind, policy::Suggest(kind, known)));
    }
    return absl::OkStatus();
}

// The whole id of a sandbox that is there now.
StatusOr<std::string> WholeId(const ClientOptions& client, const std::string& id) {
    api::Message question;
    question.mutable_inspect()->set_id(id);
    const StatusOr<api::Message> answer = AskAgent(client, question);
    if (!answer.ok()) return Annotate(answer.status(), "--sandbox");
    return answer->inspect_reply().row().id();
}

// Ends with the agent, or with us: ^C is the way out of --follow.
Status Events(const ClientOptions& client, const EventsFlags& flags, bool json) {
    SK_RETURN_IF_ERROR(CheckKinds(flags.kinds));
    std::string sandbox;
    if (!flags.sandbox.empty()) {
        SK_ASSIGN_OR_RETURN(sandbox, WholeId(client, flags.sandbox));
    }
    SK_ASSIGN_OR_RETURN(api::Channel channel, ConnectAgent(client));
    api::Message question;
    api::Events& events = *question.mutable_events();
    events.set_follow(true);
    events.set_session(flags.session);
    events.set_sandbox(sandbox);
    for (const std::string& kind : flags.kinds) events.add_kinds(kind);
    SK_RETURN_IF_ERROR(channel.Send(question));
    while (true) {
        StatusOr<api::Packet> packet = channel.Receive(-1);
        if (!packet.ok()) {
            return absl::IsUnavailable(packet.status()) ? absl::UnavailableError("the agent has left")
                                                        : packet.status();
        }
        if (packet->message.has_error()) return ErrorOf(packet->message.error());
        v1::Event event;
        if (!packet->message.has_event_record() ||
            !event.ParseFromString(packet->message.event_record().event()) || !Wanted(flags, event))
            continue;
        SK_RETURN_IF_ERROR(
            WriteAll(STDOUT_FILENO, json ? model::ToJsonLine(event) + "\n" : EventText(event)));
    }
}

// 0 where all is as it should be, 1 where a condition says that it is not.
StatusOr<int> AgentStatus(const ClientOptions& client, bool json) {
    api::Message question;
    question.mutable_ping();
    SK_ASSIGN_OR_RETURN(const api::Message answer, AskAgent(client, question));
    const api::VersionReply& agent = answer.version_reply();
    int exit_code = 0;
    for (const api::Condition& condition : agent.conditions()) {
        const bool wanted = condition.type() != "Degraded";
        if (condition.reason() != "NotConfigured" && (condition.status() == "True") != wanted) exit_code = 1;
    }
    if (json) {
        JsonObject out;
        out.Add("version", agent.version()).Add("backend", agent.backend()).Add("pid", agent.pid());
        out.Add("sandboxes", agent.sandboxes()).AddRaw("conditions", ConditionsJson(agent.conditions()));
        SK_RETURN_IF_ERROR(WriteAll(STDOUT_FILENO, out.Done() + "\n"));
        return exit_code;
    }
    SK_RETURN_IF_ERROR(WriteAll(
        STDOUT_FILENO,
        absl::StrCat("stockaded ", agent.version(), ", backend ", agent.backend(), ", pid ", agent.pid(),
                     ", ", agent.sandboxes(), " sandboxes\n", ConditionsText(agent.conditions()))));
    return exit_code;
}

Status Version(const ClientOptions& client, bool json) {
    api::Message question;
    question.mutable_ping();
    const StatusOr<api::Message> answer = AskAgent(client, question);
    const api::VersionReply agent = answer.ok() ? answer->version_reply() : api::VersionReply();
    if (json) {
        JsonObject out;
        out.Add("version", kVersion).Add("protocol", static_cast<uint32_t>(api::kProtocolVersion));
        out.Add("agent_running", answer.ok())
            .Add("agent_version", agent.version())
            .Add("backend", agent.backend());
        return WriteAll(STDOUT_FILENO,
                        out.Add("agent_pid", agent.pid()).Add("sandboxes", agent.sandboxes()).Done() + "\n");
    }
    std::string text = absl::StrCat("stockade ", kVersion, " (protocol ", api::kProtocolVersion, ")\n");
    if (answer.ok()) {
        absl::StrAppend(&text, "agent ", agent.version(), ", backend ", agent.backend(), ", pid ",
                        agent.pid(), ", ", agent.sandboxes(), " sandboxes",
                        agent.transient() ? ", transient" : "", "\n");
    } else {
        absl::StrAppend(&text, "agent: ", answer.status().message(), "\n");
    }
    return WriteAll(STDOUT_FILENO, text);
}

int ExitOf(const Status& status) { return status.ok() ? 0 : Complain(status); }

void AddOutput(CLI::App* command, bool* json) {
    command
        ->add_option_function<std::string>(
            "-o,--output", [json](const std::string& value) { *json = value == "json"; }, "text or json")
        ->check(CLI::IsMember({"text", "json"}));
}

}  // namespace

void AddQueryCommands(CLI::App& app, ClientOptions& client, int& exit_code) {
    CLI::App* ps = app.add_subcommand("ps", "List the sandboxes of this host.");
    AddOutput(ps, &client.json);
    ps->callback([&client, &exit_code] { exit_code = ExitOf(Ps(client, client.json)); });

    auto id = std::make_shared<std::string>();
    CLI::App* inspect = app.add_subcommand("inspect", "Show one sandbox: processes, policy, coverage.");
    inspect->add_option("SANDBOX", *id, "Its id, or the beginning of it")->required();
    AddOutput(inspect, &client.json);
    inspect->callback([&client, &exit_code, id] { exit_code = ExitOf(Inspect(client, *id, client.json)); });

    auto reason = std::make_shared<std::string>();
    CLI::App* kill = app.add_subcommand("kill", "Condemn a sandbox and end all of it.");
    kill->add_option("SANDBOX", *id, "Its id, or the beginning of it")->required();
    kill->add_option("--reason", *reason, "What its client is told");
    AddOutput(kill, &client.json);
    kill->callback(
        [&client, &exit_code, id, reason] { exit_code = ExitOf(Kill(client, *id, *reason, client.json)); });

    auto flags = std::make_shared<EventsFlags>();
    CLI::App* events = app.add_subcommand("events", "Follow the events of sandboxes as they happen.");
    events->add_flag("--follow,-f", flags->follow, "Go on until ^C (what it does in any case for now)");
    events->add_option("--session,-s", flags->session, "Only of this session");
    events->add_option("--sandbox", flags->sandbox, "Only of this sandbox, which must be there now");
    events->add_option("--kind,-k", flags->kinds, "Only of this kind (may be repeated)")
        ->type_name(absl::StrCat("{", absl::StrJoin(Kinds(), ","), "}"))
        ->expected(1)
        ->take_all();
    events->add_option("--tool,-t", flags->tool, "Only of this tool");
    events->add_option("--policy,-p", flags->policy, "Only what this policy judged");
    events->add_option("--verdict", flags->verdicts, "Only with this verdict (may be repeated)")
        ->check(CLI::IsMember(Verdicts()))
        ->expected(1)
        ->take_all();
    AddOutput(events, &client.json);
    events->callback(
        [&client, &exit_code, flags] { exit_code = ExitOf(Events(client, *flags, client.json)); });

    CLI::App* status = app.add_subcommand(
        "status", "Conditions of the running agent; exit 1 where one is not as it should be.");
    AddOutput(status, &client.json);
    status->callback([&client, &exit_code] {
        const StatusOr<int> code = AgentStatus(client, client.json);
        exit_code = code.ok() ? *code : Complain(code.status());
    });

    CLI::App* version = app.add_subcommand("version", "Version of this program and of the running agent.");
    AddOutput(version, &client.json);
    version->callback([&client, &exit_code] { exit_code = ExitOf(Version(client, client.json)); });
}

}  // namespace stockade::cmd
