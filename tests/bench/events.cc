// events.*: from the kernel through decode, order, redaction and spool to JSON lines on a disk, and to a broker of Kafka's that has
// acknowledged. It is the agent's own path, in this process; who makes the events are processes beside it.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "exporters/jsonl/jsonl_file.h"
#include "exporters/kafka/kafka.h"
#include "tests/bench/audit.h"
#include "tests/bench/bench.h"
#include "tests/bench/machine.h"
#include "tests/bench/policy_text.h"
#include "tests/bench/stage.h"
#include "tests/bench/worker.h"
#include "tests/events/broker.h"
#include "userspace/base/clock.h"
#include "userspace/pipeline/event_path.h"
#include "userspace/pipeline/event_store.h"

namespace stockade::bench {
namespace {

// A second, of all sandboxes together. Each has a bound of its own at 20,000 (bpf/lib/judge.h): eight reach the target below it.
constexpr int kRates[] = {1'000, 5'000, 10'000, 20'000, 30'000, 40'000, 60'000, 80'000, 100'000, 120'000};
constexpr int kProducers = 8;
constexpr int kLosingRates = 2;  // in a row, after which more would lose more
constexpr int kLatencyRate = 5'000;
constexpr uint64_t kDrainNs = 60'000'000'000;  // what is on its way when the last event was made has so long
constexpr uint64_t kSilenceNs = 2'000'000'000;  // after which what auditd has not written will not come
constexpr int kPollMs = 5;
constexpr int kAgentNice = -10;

struct Arrived {
    uint64_t events = 0;
    std::vector<double> latency_ms;  // hook to acknowledged
};

// Between pump and exporter: when each event was acknowledged.
class Watched : public exporters::SpooledExporter {
  public:
    Watched(std::unique_ptr<exporters::SpooledExporter> exporter, std::mutex& mutex, Arrived& delivered)
        : exporter_(std::move(exporter)), mutex_(mutex), delivered_(delivered) {}
    std::string name() const override { return exporter_->name(); }
    void OnDelivered(exporters::SpooledExporter::Delivered tell) override {
        exporter_->OnDelivered([this, tell = std::move(tell)](uint64_t tag, const Status& status) {
            const auto hook = hooks_.find(tag);
            if (hook != hooks_.end()) {
                if (status.ok() && hook->second != 0) {
                    const double ms = static_cast<double>(BootNow() - hook->second) / 1e6;
                    std::lock_guard lock(mutex_);
                    ++delivered_.events;
                    delivered_.latency_ms.push_back(ms);
                }
                hooks_.erase(hook);
            }
            tell(tag, status);
        });
    }
    Status Send(uint64_t tag, const model::EventBytes& event, bool again) override {
        hooks_[tag] = event.kernel_seq != 0 ? event.boot_ns : 0;
        const Status status = exporter_->Send(tag, event, again);
        if (!status.ok()) hooks_.erase(tag);
        return status;
    }
    void Poll(int timeout_ms) override { exporter_->Poll(timeout_ms); }
    Status Health() const override { return exporter_->Health(); }
    void Close(int timeout_ms) override { exporter_->Close(timeout_ms); }
    exporters::ExporterCounters counters() const override { return exporter_->counters(); }

  private:
    std::unique_ptr<exporters::SpooledExporter> exporter_;
    std::mutex& mutex_;
    Arrived& delivered_;
    absl::flat_hash_map<uint64_t, uint64_t> hooks_;  // of what is under way, by tag; of one thread
};

struct Producer {
    std::unique_ptr<Worker> worker;
    kernel::SlotRef ref;
};

// What one rate gave.
struct Seen {
    int offered = 0;
    uint64_t made = 0, lost = 0, suppressed = 0;
    Arrived delivered;
    double seconds = 0;  // until the last was acknowledged
    double cpu_us = 0;   // of this process, for each event
    double peer_cpu_us = 0;
    double memory_mib = 0;
};

uint64_t CpuUs() {
    rusage usage{};
    (void)getrusage(RUSAGE_SELF, &usage);  // always there
    const auto us = [](const timeval& time) { return static_cast<uint64_t>(time.tv_sec) * 1'000'000 + static_cast<uint64_t>(time.tv_usec); };
    return us(usage.ru_utime) + us(usage.ru_stime);
}

// 0 where there is no such process.
uint64_t CpuUsOf(pid_t pid) {
    const auto text = ReadFile(absl::StrCat("/proc/", pid, "/stat"), 4096);
    if (pid <= 0 || !text.ok()) return 0;
    const std::vector<absl::string_view> words = absl::StrSplit(absl::string_view(*text).substr(text->rfind(')') + 2), ' ');
    uint64_t user = 0, system = 0;
    if (words.size() < 13 || !absl::SimpleAtoi(words[11], &user) || !absl::SimpleAtoi(words[12], &system)) return 0;
    return (user + system) * 1'000'000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
}

double AnonMib() {
    const auto text = ReadFile("/proc/self/status", 16384);
    const size_t at = text.ok() ? text->find("RssAnon:") : std::string::npos;
    return at == std::string::npos ? 0 : static_cast<double>(strtoull(text->c_str() + at + 8, nullptr, 10)) / 1024;
}

// One path with its sandboxes and its exporter.
class Line {
  public:
    ~Line() { (void)setpriority(PRIO_PROCESS, 0, 0); }
    static StatusOr<std::unique_ptr<Line>> Create(const Settings& settings, const std::string& kind,
                                                  exporters::ExporterOptions options, pid_t peer);
    StatusOr<Seen> Run(int per_second, uint64_t wall_ns);
    const std::string& dir() const { return stage_->dir(); }

  private:
    Line() = default;
    Status Look(int timeout_ms);
    Status Books(int sign, Seen* seen);
    uint64_t Count();

    std::unique_ptr<Stage> stage_;
    std::unique_ptr<Machine> machine_;
    std::optional<Ports> ports_;
    std::vector<Producer> producers_;
    std::map<uint64_t, std::shared_ptr<const model::SandboxInfo>> known_;
    std::mutex mutex_;
    Arrived delivered_;
    std::unique_ptr<pipeline::EventStore> store_;
    std::unique_ptr<pipeline::EventPath> path_;
    std::deque<std::pair<uint64_t, kernel::RingPosition>> unreleased_;
    uint64_t pass_ = 0;
    pid_t peer_ = 0;
};

StatusOr<std::unique_ptr<Line>> Line::Create(const Settings& settings, const std::string& kind,
                                             exporters::ExporterOptions options, pid_t peer) {
    std::unique_ptr<Line> line(new Line());
    line->peer_ = peer;
    SK_ASSIGN_OR_RETURN(line->stage_, Stage::Create(settings.step));
    SK_ASSIGN_OR_RETURN(line->machine_, Machine::Create(settings.backend, line->stage_->launched_cgroup()));
    SK_ASSIGN_OR_RETURN(line->ports_, Ports::Take());
    SK_RETURN_IF_ERROR(line->machine_->Attach(Attached::kPrograms));
    SK_ASSIGN_OR_RETURN(const auto policy, line->machine_->Publish(PolicyText(
                                               *line->stage_, {.port = line->ports_->closed_port(), .record_files = true})));
    for (int i = 0; i < kProducers; ++i) {
        Producer producer;
        SK_ASSIGN_OR_RETURN(const std::string cgroup, line->stage_->NewCgroup());
        SK_ASSIGN_OR_RETURN(producer.worker, Worker::Start({.cgroup = cgroup,
                                                            .file = line->stage_->file(),
                                                            .step = line->stage_->step(),
                                                            .closed_port = line->ports_->closed_port(),
                                                            .udp_port = line->ports_->udp_port(),
                                                            .preferred = false}));
        SK_ASSIGN_OR_RETURN(producer.ref, line->machine_->Bind(cgroup, producer.worker->pidfd(), policy.index));
        SK_RETURN_IF_ERROR(line->machine_->slots().Label(producer.ref, producer.worker->pidfd()));
        auto info = std::make_shared<model::SandboxInfo>();
        info->id = model::SandboxId::New();
        info->labels.session = absl::StrCat("session-", i);
        info->runtime = "native";
        line->known_[(uint64_t{producer.ref.slot} << 32) | producer.ref.generation] = std::move(info);
        line->producers_.push_back(std::move(producer));
    }
    // As the agent does (cmd/stockaded_main.cc); the threads below have it from this one, and the workers have not.
    (void)setpriority(PRIO_PROCESS, 0, kAgentNice);
    if (kind == "jsonl") options["path"] = line->dir() + "/events.jsonl";
    pipeline::EventStore::Options store;
    store.key_path = line->dir() + "/node.key";
    store.spool.dir = line->dir() + "/spool";
    store.spool.node = "bench";
    Line* const self = line.get();  // outlives the store
    store.readers = {{kind, [self, kind, options]() -> StatusOr<std::unique_ptr<exporters::SpooledExporter>> {
                          SK_ASSIGN_OR_RETURN(auto made, kind == "jsonl" ? exporters::MakeJsonlFile(options)
                                                                         : exporters::MakeKafka(options));
                          return std::make_unique<Watched>(std::move(made), self->mutex_, self->delivered_);
                      }}};
    line->store_ = pipeline::EventStore::Open(std::move(store));
    SK_RETURN_IF_ERROR(line->store_->Health());
    pipeline::EventPath::Options path;
    path.node = "bench";
    path.wall_offset_ns = WallNow() - BootNow();
    path.lookup = [self](uint32_t slot, uint32_t generation) -> std::shared_ptr<const model::SandboxInfo> {
        const auto found = self->known_.find((uint64_t{slot} << 32) | generation);
        return found == self->known_.end() ? nullptr : found->second;
    };
    line->path_ = std::make_unique<pipeline::EventPath>(std::move(path));
    line->path_->AddObserver([self](const v1::Event& event) { self->store_->Take(event); });
    for (const Producer& producer : line->producers_) line->path_->Track(producer.ref.slot, producer.ref.generation, 0);
    line->store_->Start({});
    return line;
}

// As EventHub::Read and ClosePass, for nobody who listens.
Status Line::Look(int timeout_ms) {
    SK_RETURN_IF_ERROR(machine_->rings()
                           .Poll(timeout_ms, [this](kernel::Ring, std::span<const uint8_t> record) { path_->OnRecord(record); })
                           .status());
    path_->OnDrained(BootNow());
    ++pass_;
    const kernel::RingPosition handed = machine_->rings().Handed();
    if (unreleased_.empty() || unreleased_.back().second != handed) unreleased_.emplace_back(pass_, handed);
    store_->EndPass(path_->PassesHandedOn());
    for (; !unreleased_.empty() && unreleased_.front().first <= store_->stored_pass(); unreleased_.pop_front())
        machine_->rings().Release(unreleased_.front().second);
    return absl::OkStatus();
}

Status Line::Books(int sign, Seen* seen) {
    for (const Producer& producer : producers_) {
        SK_ASSIGN_OR_RETURN(const sk_state state, machine_->slots().ReadState(producer.ref));
        seen->made += sign * state.seq;
        seen->lost += sign * state.lost;
        seen->suppressed += sign * state.suppressed;
    }
    return absl::OkStatus();
}

uint64_t Line::Count() {
    std::lock_guard lock(mutex_);
    return delivered_.events;
}

StatusOr<Seen> Line::Run(int per_second, uint64_t wall_ns) {
    Seen seen;
    seen.offered = per_second;
    {
        std::lock_guard lock(mutex_);
        delivered_ = {};
    }
    SK_RETURN_IF_ERROR(Books(-1, &seen));
    const uint64_t begin = BootNow(), cpu = CpuUs(), peer_cpu = CpuUsOf(peer_);
    for (Producer& producer : producers_)
        SK_RETURN_IF_ERROR(producer.worker->Begin(Op::kOpenClose, wall_ns, static_cast<uint64_t>(per_second) / kProducers));
    uint64_t looked = begin;
    while (BootNow() - begin < wall_ns) {
        SK_RETURN_IF_ERROR(Look(kPollMs));
        if (BootNow() - looked < 100'000'000) continue;
        looked = BootNow();
        seen.memory_mib = std::max(seen.memory_mib, AnonMib());
    }
    for (Producer& producer : producers_) SK_RETURN_IF_ERROR(producer.worker->Finish().status());
    SK_RETURN_IF_ERROR(Books(1, &seen));
    const uint64_t wanted = seen.made - seen.lost - seen.suppressed;
    while (Count() < wanted && BootNow() - begin < wall_ns + kDrainNs) SK_RETURN_IF_ERROR(Look(kPollMs));
    seen.seconds = static_cast<double>(BootNow() - begin) / 1e9;
    {
        std::lock_guard lock(mutex_);
        seen.delivered = delivered_;
    }
    if (seen.delivered.events < wanted)
        return absl::InternalError(absl::StrCat(seen.made, " records, ", seen.lost, " lost and ", seen.suppressed, " left out, but only ",
                                                seen.delivered.events, " events arrived"));
    const auto per_event = [&](uint64_t us) { return static_cast<double>(us) / static_cast<double>(std::max<uint64_t>(1, wanted)); };
    seen.cpu_us = per_event(CpuUs() - cpu);
    seen.peer_cpu_us = per_event(CpuUsOf(peer_) - peer_cpu);
    return seen;
}

Figure Of(const std::string& name, const std::string& unit, std::vector<double> samples, std::string note) {
    Figure figure{.name = name, .unit = unit, .note = std::move(note)};
    figure.with = QuantilesOf(std::move(samples));
    return figure;
}

std::string Note(const Seen& seen, pid_t peer) {
    std::string note = absl::StrCat(seen.delivered.events, " events, ", seen.lost, " lost, ", seen.suppressed, " left out by their own rate, ",
                                    static_cast<int>(seen.cpu_us * 10) / 10.0, " us of CPU an event");
    if (peer > 0) absl::StrAppend(&note, ", the broker's ", static_cast<int>(seen.peer_cpu_us * 10) / 10.0);
    return note;
}

// One figure for each rate; what is returned is the one at which most came through while none was lost, and the calm one.
struct Best {
    Seen most, calm;
};
StatusOr<Best> Rates(const std::string& kind, pid_t peer, const std::function<StatusOr<Seen>(int)>& run, std::vector<Figure>* figures) {
    const std::string prefix = absl::StrCat("events.", kind, ".");
    const auto per_second = [](const Seen& seen) { return static_cast<double>(seen.delivered.events) / seen.seconds; };
    std::optional<Seen> most, calm;
    int losing = 0;
    for (const int rate : kRates) {
        SK_ASSIGN_OR_RETURN(Seen seen, run(rate));
        figures->push_back(Of(absl::StrCat(prefix, "at_", rate), "1/s", {per_second(seen)}, Note(seen, peer)));
        // It takes minutes in all, and somebody may be looking.
        std::cerr << "stockade-bench: " << figures->back().name << ": " << static_cast<int>(per_second(seen)) << " a second, "
                  << figures->back().note << "\n";
        if (rate == kLatencyRate) calm = seen;
        losing = seen.lost > 0 ? losing + 1 : 0;
        if (losing == kLosingRates && calm) break;
        if (seen.lost == 0 && (!most || per_second(*most) < per_second(seen))) most = std::move(seen);
    }
    if (!most || !calm) return absl::InternalError("records were lost at every rate");
    Figure figure = Of(prefix + "per_second", "1/s", {per_second(*most)}, absl::StrCat("offered ", most->offered, "; ", Note(*most, peer)));
    if (kind == "jsonl") figure.target = {.of = Target::Of::kWithAtLeast, .limit = 100000, .text = "at least 100,000 a second on 2 cores"};
    figures->push_back(std::move(figure));
    figures->push_back(Of(prefix + "cpu", "us", {most->cpu_us}, absl::StrCat("of an event at ", most->offered, " a second, all threads")));
    return Best{*std::move(most), *std::move(calm)};
}

Status Measure(const Settings& settings, const std::string& kind, exporters::ExporterOptions options, pid_t peer,
               std::vector<Figure>* figures) {
    SK_ASSIGN_OR_RETURN(const auto line, Line::Create(settings, kind, std::move(options), peer));
    SK_ASSIGN_OR_RETURN(Best best, Rates(kind, peer, [&](int rate) { return line->Run(rate, static_cast<uint64_t>(settings.seconds * 1e9)); }, figures));
    const std::string prefix = absl::StrCat("events.", kind, ".");
    figures->push_back(Of(prefix + "latency", "ms", std::move(best.calm.delivered.latency_ms),
                          absl::StrCat("hook to acknowledged, at ", kLatencyRate, " a second")));
    figures->push_back(Of(prefix + "memory", "MiB", {best.most.memory_mib}, "anonymous, of the whole bench process, rings apart"));
    return absl::OkStatus();
}

Status MeasureKafka(const Settings& settings, std::vector<Figure>* figures) {
    SK_ASSIGN_OR_RETURN(const auto broker, testing_events::Broker::Start());
    for (const char* name : {"process", "file", "network", "dns", "findings", "lifecycle", "audit"})
        SK_RETURN_IF_ERROR(broker->CreateTopic(absl::StrCat("bench.", name), 3));
    return Measure(settings, "kafka", {{"hostport", broker->hostport()}, {"topic", "bench"}}, broker->pid(), figures);
}

// The same opens by as many processes, recorded by the kernel's audit and written down by auditd.
class Recorded {
  public:
    static StatusOr<std::unique_ptr<Recorded>> Create(const Settings& settings);
    StatusOr<Seen> Run(int per_second, uint64_t wall_ns);

  private:
    uint64_t Cpu() const { return CpuUsOf(audit_->daemon()) + CpuUsOf(audit_->kernel_thread()); }

    std::unique_ptr<Stage> stage_;
    std::optional<Ports> ports_;
    std::unique_ptr<Audit> audit_;
    std::vector<std::unique_ptr<Worker>> workers_;  // ended before audit is
    std::set<pid_t> pids_;
};

StatusOr<std::unique_ptr<Recorded>> Recorded::Create(const Settings& settings) {
    auto recorded = std::make_unique<Recorded>();
    SK_ASSIGN_OR_RETURN(recorded->stage_, Stage::Create(settings.step));
    SK_ASSIGN_OR_RETURN(recorded->ports_, Ports::Take());
    SK_ASSIGN_OR_RETURN(recorded->audit_, Audit::Start(*recorded->stage_));
    for (int i = 0; i < kProducers; ++i) {
        SK_ASSIGN_OR_RETURN(auto worker, Worker::Start({.cgroup = recorded->stage_->base_cgroup(),
                                                        .file = recorded->stage_->file(),
                                                        .step = recorded->stage_->step(),
                                                        .closed_port = recorded->ports_->closed_port(),
                                                        .udp_port = recorded->ports_->udp_port(),
                                                        .preferred = false}));
        recorded->pids_.insert(worker->pid());
        recorded->workers_.push_back(std::move(worker));
    }
    SK_RETURN_IF_ERROR(recorded->audit_->Read(recorded->pids_).status());
    return recorded;
}

StatusOr<Seen> Recorded::Run(int per_second, uint64_t wall_ns) {
    Seen seen;
    seen.offered = per_second;
    const uint64_t begin = BootNow(), cpu = Cpu();
    for (const auto& worker : workers_)
        SK_RETURN_IF_ERROR(worker->Begin(Op::kOpenClose, wall_ns, static_cast<uint64_t>(per_second) / kProducers));
    for (const auto& worker : workers_) {
        SK_ASSIGN_OR_RETURN(const uint64_t calls, worker->Finish());
        seen.made += calls + 1;  // and the first, which is not told
    }
    // What is not there so long after the last is not on its way.
    uint64_t last = BootNow();
    while (seen.delivered.events < seen.made && BootNow() - last < kSilenceNs) {
        SK_ASSIGN_OR_RETURN(const Audit::Books books, audit_->Read(pids_));
        seen.delivered.events += books.events;
        if (books.events > 0) last = BootNow();
        usleep(20'000);  // between two looks
    }
    seen.seconds = static_cast<double>(last - begin) / 1e9;
    seen.lost = seen.made - std::min(seen.made, seen.delivered.events);
    seen.cpu_us = static_cast<double>(Cpu() - cpu) / static_cast<double>(std::max<uint64_t>(1, seen.delivered.events));
    return seen;
}

Status MeasureAudit(const Settings& settings, std::vector<Figure>* figures) {
    SK_ASSIGN_OR_RETURN(const auto recorded, Recorded::Create(settings));
    return Rates("auditd", 0, [&](int rate) { return recorded->Run(rate, static_cast<uint64_t>(settings.seconds * 1e9)); }, figures).status();
}

// Of what a machine may lack (Java, a way to fetch the broker, auditd) the figures of the others are there.
void Or(const std::string& name, const Status& status, std::vector<Figure>* figures) {
    if (!status.ok()) figures->push_back({.name = name, .skipped = std::string(status.message())});
}

}  // namespace

Status RunEvents(const Settings& settings, std::vector<Figure>* figures) {
    // Each takes half a minute and more: not for who wants the others alone.
    const auto wanted = [&](absl::string_view kind) {
        return settings.names.empty() || std::any_of(settings.names.begin(), settings.names.end(), [&](const std::string& name) {
                   return name == "events" || absl::StartsWith(name, absl::StrCat("events.", kind));
               });
    };
    if (wanted("jsonl")) SK_RETURN_IF_ERROR(Measure(settings, "jsonl", {}, 0, figures));
    if (wanted("kafka")) Or("events.kafka", MeasureKafka(settings, figures), figures);
    if (wanted("auditd")) Or("events.auditd", MeasureAudit(settings, figures), figures);
    return absl::OkStatus();
}

}  // namespace stockade::bench
