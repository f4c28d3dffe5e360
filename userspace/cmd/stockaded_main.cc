// stockaded: the one agent of a host.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "exporters/jsonl/jsonl_file.h"
#include "exporters/kafka/kafka.h"
#include "exporters/kafka/kafka_options.h"
#include "exporters/kafka/kafka_topics.h"
#include "exporters/otlp/otlp.h"
#include "exporters/otlp/otlp_options.h"
#include "userspace/base/errno.h"
#include "userspace/base/log.h"
#include "userspace/base/log_target.h"
#include "userspace/cmd/access.h"
#include "userspace/cmd/agent.h"
#include "userspace/cmd/agent_lock.h"
#include "userspace/cmd/capabilities.h"
#include "userspace/cmd/command_words.h"
#include "userspace/cmd/config_record.h"
#include "userspace/cmd/dns_ledger.h"
#include "userspace/cmd/rule_store.h"
#include "userspace/metrics/http/server.h"

namespace stockade::cmd {
namespace {

// Nine times the share of a task at 0 (the kernel's sched_prio_to_weight), far from what starves others.
constexpr int kAgentNice = -10;

struct Flags {
    std::string config = kDefaultConfigPath;
    std::string idle_exit;
    std::string runtime_dir;
    std::string pin_dir;
    std::string backend;
    std::string log = "auto";
    std::vector<std::string> policy_dirs;
    int ready_fd = -1;
    bool check = false;
};

using MakeExporterFn =
    StatusOr<std::unique_ptr<exporters::SpooledExporter>> (*)(const exporters::ExporterOptions&);

// One row for each exporter that the spool can feed.
struct Exporter {
    ExporterKind kind;
    MakeExporterFn make;
};
std::vector<Exporter> Exporters() {
    return {
        {{"jsonl", exporters::JsonlFileOptionNames(),
          [](const exporters::ExporterOptions& options) {
              return exporters::MakeJsonlFile(options).status();
          }},
         exporters::MakeJsonlFile},
        {{"kafka", exporters::KafkaOptionNames(),
          [](const exporters::ExporterOptions& options) {
              return exporters::ParseKafkaOptions(options).status();
          }},
         exporters::MakeKafka},
        {{"otlp", exporters::OtlpOptionNames(),
          [](const exporters::ExporterOptions& options) {
              return exporters::ParseOtlpOptions(options).status();
          }},
         exporters::MakeOtlp},
    };
}

Status CheckEvents(const Config& config) {
    std::vector<ExporterKind> kinds;
    for (const Exporter& exporter : Exporters()) kinds.push_back(exporter.kind);
    return CheckExporters(config.events, kinds);
}

// Of a configuration that was checked.
std::vector<pipeline::EventStore::Reader> Readers(const Config& config) {
    std::vector<pipeline::EventStore::Reader> readers;
    for (const ExporterConfig& wanted : config.events.exporters) {
        for (const Exporter& exporter : Exporters()) {
            if (exporter.kind.name != wanted.kind) continue;
            readers.push_back(
                {wanted.name, [make = exporter.make, options = wanted.options] { return make(options); }});
        }
    }
    return readers;
}

kernel::Backend BackendOf(const std::string& name) {
    if (name == "lsm") return kernel::Backend::kLsm;
    return name == "signal" ? kernel::Backend::kSignal : kernel::Backend::kAuto;
}

Config WithFlags(Config config, const Flags& flags) {
    if (!flags.runtime_dir.empty()) config.runtime_dir = flags.runtime_dir;
    if (!flags.pin_dir.empty()) config.pin_dir = flags.pin_dir;
    if (!flags.backend.empty()) config.backend = flags.backend;
    if (!flags.policy_dirs.empty()) config.policy_dirs = flags.policy_dirs;
    return config;
}

// Null = nobody wants them. One that cannot be had is told, and keeps no sandbox from its policy.
std::unique_ptr<metrics::Server> ServeMetrics(const MetricsConfig& config, bool transient) {
    // Who runs a tool on a laptop asked for no port.
    if (!config.on() || (transient && !config.named)) return nullptr;
    StatusOr<std::unique_ptr<metrics::Server>> server = metrics::Server::Start(config.listen);
    if (server.ok()) return *std::move(server);
    LogError("no metrics: ", server.status().message());
    return nullptr;
}

// Where whoever started us wants its log. A journal that is named is used with its fields, unless something else is asked for.
Status ChooseLog(const std::string& format) {
    if (format == "json") (void)SetLogTarget(LogTarget::kJson, "stockaded");  // needs nobody
    const bool journal = format == "journal" || (format == "auto" && StandardErrorIsJournal());
    if (!journal || SetLogTarget(LogTarget::kJournal, "stockaded") || format == "auto")
        return absl::OkStatus();
    return absl::UnavailableError("--log journal: no journald listens on this host");
}

void TellReady(int ready_fd, absl::string_view text) {
    if (ready_fd < 0) return;
    (void)WriteAll(ready_fd, text);  // whoever started us may be gone
    (void)close(ready_fd);
}

// What the stub may have open at once (dns::kStubInFlight queries, each up to kStubTries sockets) is beyond the usual soft limit of
// 1,024: some sandboxes whose names nobody answers would leave none to the rest of the agent. Where it is not allowed it is as it was.
void TakeDescriptors() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

// 0, 1 for what the agent would not start with, 2 for what somebody should look at.
int Check(const Flags& flags) {
    const StatusOr<Config> config = LoadConfig(flags.config, flags.config != kDefaultConfigPath);
    const Status status = config.ok() ? CheckEvents(*config) : config.status();
    if (!status.ok()) {
        (void)WriteAll(STDERR_FILENO, absl::StrCat(status.message(), "\n"));  // the exit status says the same
        return 1;
    }
    std::vector<std::string> warnings = ExporterWarnings(config->events);
    if (config->rules.enabled) {
        const LoadedRules rules = LoadRules(config->rules, Broken::kGiveUp);
        for (const std::string& error : rules.errors)
            (void)WriteAll(STDERR_FILENO, absl::StrCat(error, "\n"));  // as above
        if (!rules.errors.empty()) return 1;
        warnings.insert(warnings.end(), rules.warnings.begin(), rules.warnings.end());
    }
    for (const std::string& warning : warnings)
        (void)WriteAll(STDERR_FILENO, absl::StrCat(warning, "\n"));  // as above
    const std::string verdict =
        warnings.empty()
            ? "ok"
            : absl::StrCat("ok, with ", warnings.size(), warnings.size() == 1 ? " warning" : " warnings");
    (void)WriteAll(STDOUT_FILENO, absl::StrCat(flags.config, ": ", verdict, "\n"));  // as above
    return warnings.empty() ? 0 : 2;
}

// Sandboxes that keep all CPUs busy should wait for their end, not the other way round; shims and sandboxes come from the helper and stay
// as they are. Where it is not allowed the agent works as well, later.
void TakePriority() {
    (void)setpriority(PRIO_PROCESS, 0, kAgentNice);
    // With sched_autogroup the kernel shares the CPUs among sessions first, and a task's own value counts within its session alone.
    // Of a session that is not ours alone we say nothing.
    if (getsid(0) != getpid()) return;
    const StatusOr<Fd> autogroup = Fd::Open("/proc/self/autogroup", O_WRONLY);
    if (autogroup.ok()) (void)WriteAll(autogroup->get(), absl::StrCat(kAgentNice));  // as above
}

Status Serve(const Flags& flags, Helper& helper, ServiceManager service) {
    SK_ASSIGN_OR_RETURN(Config written, LoadConfig(flags.config, flags.config != kDefaultConfigPath));
    SK_RETURN_IF_ERROR(CheckEvents(written));
    Config config = WithFlags(written, flags);
    std::vector<pipeline::EventStore::Reader> readers = Readers(config);
    written.runtime_dir = config.runtime_dir;
    absl::Duration idle = absl::ZeroDuration();
    if (!flags.idle_exit.empty() &&
        (!absl::ParseDuration(flags.idle_exit, &idle) || idle <= absl::ZeroDuration())) {
        return absl::InvalidArgumentError("--idle-exit takes a duration such as 60s");
    }
    SK_ASSIGN_OR_RETURN(const Fd lock, LockAgent({.runtime_dir = config.runtime_dir,
                                                  .socket = config.socket_path(),
                                                  .stays = idle == absl::ZeroDuration()}));
    WriteConfigRecord(written);
    // Without them zones that were written down by an earlier agent mean nothing: sandboxes without DNS do not mind.
    StatusOr<std::optional<sk_hash_keys>> keys = ReadHashKeys(config.state_dir);
    if (!keys.ok()) LogError(keys.status().message());
    SK_ASSIGN_OR_RETURN(auto sensor, kernel::Sensor::Create({.pin_dir = config.pin_dir,
                                                             .backend = BackendOf(config.backend),
                                                             .keys = keys.ok() ? *keys : std::nullopt}));
    SK_ASSIGN_OR_RETURN(launch::CgroupHome home, launch::FindCgroupHome(config.cgroup_name));
    SK_RETURN_IF_ERROR(sensor->AttachNetwork(home.dir.get()));
    SK_ASSIGN_OR_RETURN(Fd listen, api::Listen(config.socket_path()));
    if (const std::optional<gid_t> group = Access(config.api).group(); group.has_value()) {
        SK_RETURN_IF_ERROR(OpenSocketTo(config.socket_path(), *group));
    }
    TakePriority();
    SK_RETURN_IF_ERROR(DropCapabilities());
    const std::string socket_path = config.socket_path();
    (void)Agent::TakeSignals();  // the set itself is the agent's business
    const std::unique_ptr<metrics::Server> server =
        ServeMetrics(config.metrics, idle != absl::ZeroDuration());
    SK_ASSIGN_OR_RETURN(auto agent,
                        Agent::Create({.config = std::move(config),
                                       .idle_exit_ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(idle)),
                                       .helper = &helper,
                                       .sensor = sensor.get(),
                                       .listen = std::move(listen),
                                       .home = std::move(home),
                                       .exporters = std::move(readers),
                                       .service = std::move(service),
                                       .metrics = server.get()}));
    LogInfo("stockaded ", kVersion, ": backend ",
            sensor->backend() == kernel::Backend::kLsm ? "lsm" : "signal",
            sensor->adopted() ? ", pins adopted" : "", ", listening at ", socket_path);
    TellReady(flags.ready_fd, "ready\n");
    const Status status = agent->Serve();
    (void)unlink(socket_path.c_str());
    return status;
}

// For `stockade verify --kafka`, which has no client of Kafka's: no agent, and no root.
int PrintTopics(int argc, char** argv) {
    const Status status = exporters::PrintTopics({argv, argv + argc}, STDOUT_FILENO);
    if (!status.ok()) (void)WriteAll(STDERR_FILENO, absl::StrCat("stockade: verify: ", status.message(), "\n"));  // as the exit status
    return status.ok() ? 0 : 1;
}

}  // namespace

int AgentMain(int argc, char** argv) {
    if (argc > 1 && absl::string_view(argv[1]) == "--print-topics") return PrintTopics(argc - 2, argv + 2);
    // Before anything is loaded, opened or started.
    ServiceManager service = ServiceManager::FromEnvironment();
    StatusOr<Helper> helper = Helper::Fork(argc, argv);
    if (!helper.ok()) {
        LogError(helper.status().message());
        return 125;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    TakeDescriptors();
    Flags flags;
    CLI::App app("stockaded: the agent that binds sandboxes to their policies in the kernel", "stockaded");
    app.add_option("--config", flags.config,
                   "Configuration (default " + std::string(kDefaultConfigPath) + ")");
    app.add_option("--idle-exit", flags.idle_exit, "Leave after so long without a sandbox, e.g. 60s");
    app.add_option("--runtime-dir", flags.runtime_dir, "Where the socket and the state files are");
    app.add_option("--pin-dir", flags.pin_dir, "Directory on a bpffs for programs and maps");
    app.add_option("--backend", flags.backend, "auto, signal or lsm")
        ->check(CLI::IsMember({"auto", "signal", "lsm"}));
    app.add_option("--policies", flags.policy_dirs, "Directories with policies");
    app.add_option("--ready-fd", flags.ready_fd,
                   "Descriptor that is told \"ready\", or the error, in one line");
    app.add_flag("--check", flags.check,
                 "Check the configuration and leave: 0 well, 1 wrong, 2 with warnings");
    app.add_option("--log", flags.log,
                   "auto, text, json or journal (auto: the journal with its fields under systemd, else text)")
        ->check(CLI::IsMember({"auto", "text", "json", "journal"}));
    app.set_version_flag("--version", std::string("stockaded ") + kVersion);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& help) {
        return app.exit(help);
    } catch (const CLI::ParseError& error) {
        // To whoever typed it, and not as a line of a log.
        (void)WriteAll(STDERR_FILENO, absl::StrCat("stockaded: ", ParseComplaint(app, error), "\n"));
        return 125;
    }
    if (flags.check) return Check(flags);
    if (const Status status = ChooseLog(flags.log); !status.ok()) {
        LogError(status.message());
        return 125;
    }
    if (geteuid() != 0) {
        LogError("stockaded must be started as root");
        return 125;
    }
    const Status status = Serve(flags, *helper, std::move(service));
    if (!status.ok()) {
        LogError(status.message());
        TellReady(flags.ready_fd, absl::StrCat("error: ", status.message(), "\n"));
        return 125;
    }
    return 0;
}

}  // namespace stockade::cmd

int main(int argc, char** argv) {
    if (!stockade::FillStandardStreams()) return 125;
    return stockade::cmd::AgentMain(argc, argv);
}
