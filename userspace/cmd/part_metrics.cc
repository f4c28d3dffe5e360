#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/part_metrics.h"

namespace stockade::cmd {
namespace {

// The number that stands in the file's first line, in the place of `field`; 0 where there is none.
uint64_t Field(const char* path, size_t field) {
    const StatusOr<std::string> text = ReadFile(path, 4096);
    uint64_t value = 0;
    if (!text.ok()) return 0;
    const std::vector<absl::string_view> fields = absl::StrSplit(*text, ' ');
    return field < fields.size() && absl::SimpleAtoi(fields[field], &value) ? value : 0;
}

double Seconds(const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

void CountPath(const pipeline::PathCounters& counters, metrics::Families* out) {
    for (size_t i = 0; i < counters.decode.size(); ++i) {
        out->Counter("stockade_decode_odd_records_total",
                     "Records that were refused, or of which something is odd, by what.",
                     static_cast<double>(counters.decode[i]),
                     {{"reason", std::string(decode::ToString(static_cast<decode::Reason>(i)))}});
    }
    const pipeline::Sequencer::Counters& sequence = counters.sequence;
    const std::pair<const char*, uint64_t> sequenced[] = {{"reordered", sequence.reordered},
                                                          {"late", sequence.late},
                                                          {"duplicate", sequence.duplicate},
                                                          {"gap_given_up_early", sequence.early},
                                                          {"suppressed", sequence.suppressed}};
    for (const auto& [what, count] : sequenced) {
        out->Counter("stockade_sequencer_records_total",
                     "Records that did not come in order, or not at all, by what was found.",
                     static_cast<double>(count), {{"result", what}});
    }
    out->Counter("stockade_events_lost_total",
                 "Records that are missing and that nothing explains; each is told by an event.",
                 static_cast<double>(sequence.lost));
    out->Gauge("stockade_sequencer_waiting_events", "Events that wait behind a gap.",
               static_cast<double>(counters.waiting));
    out->Gauge("stockade_host_names", "Addresses whose names are remembered.", static_cast<double>(counters.names_known));
    out->Counter("stockade_host_names_forgotten_total", "Names of addresses that a bound took, or did not let in.",
                 static_cast<double>(counters.names.forgotten + counters.names.refused));
    out->Gauge("stockade_process_tree_processes", "Processes that are remembered.",
               static_cast<double>(counters.processes));
    out->Counter("stockade_process_tree_evictions_total",
                 "Processes that made room, by whether they had ended.",
                 static_cast<double>(counters.tree.evicted_live), {{"state", "live"}});
    out->Counter("stockade_process_tree_evictions_total", "",
                 static_cast<double>(counters.tree.evicted_exited), {{"state", "exited"}});
    out->Counter("stockade_process_tree_unknown_total", "Events of a process that no record had introduced.",
                 static_cast<double>(counters.tree.unknown));
    out->Counter("stockade_summaries_overflowed_total",
                 "Events of sandboxes beyond those that summaries are kept of.",
                 static_cast<double>(counters.summaries_overflowed));
    for (const auto& [pattern, count] : counters.redacted) {
        out->Counter("stockade_redactions_total",
                     "Secrets that were replaced, by the pattern that found them.",
                     static_cast<double>(count), {{"pattern", pattern}});
    }
}

void CountDetect(const RuleCounters& counters, const AgentCounts& agent, bool broken,
                 metrics::Families* out) {
    out->Gauge("stockade_rules", "Detection rules that are at work.", static_cast<double>(counters.rules));
    out->Gauge("stockade_rules_broken", "1 while the rules are not those that their files say.", broken);
    const std::pair<const char*, uint64_t> loads[] = {{"loaded", counters.loads},
                                                      {"broken", counters.broken_loads}};
    for (const auto& [result, count] : loads) {
        out->Counter("stockade_rules_loads_total", "Times that the files of the rules were read.",
                     static_cast<double>(count), {{"result", result}});
    }
    out->Gauge("stockade_rules_waiting_events", "Events that wait for the rules.",
               static_cast<double>(counters.waiting));
    const std::pair<const char*, uint64_t> events[] = {{"matched", counters.events},
                                                       {"missed_telemetry", counters.missed_telemetry},
                                                       {"missed_refused", counters.missed_refused}};
    for (const auto& [result, count] : events) {
        out->Counter("stockade_rules_events_total",
                     "Events by whether the rules looked at them; missed ones came faster than that.",
                     static_cast<double>(count), {{"result", result}});
    }
    out->Counter("stockade_rules_looked_at_total", "Rules that were looked at one by one, in all events.",
                 static_cast<double>(counters.looked_at));
    out->Counter("stockade_rules_unfiltered_events_total",
                 "Events whose values were cut or redacted, so that more rules had to be looked at.",
                 static_cast<double>(counters.unfiltered));
    const std::pair<const char*, uint64_t> findings[] = {{"found", counters.findings},
                                                         {"undecidable", counters.undecidable},
                                                         {"told_by_number_only", counters.untold_findings}};
    for (const auto& [result, count] : findings) {
        out->Counter("stockade_rules_findings_total", "What the rules found, and what they could not decide.",
                     static_cast<double>(count), {{"result", result}});
    }
    const detect::Correlator::Counters& state = counters.correlations;
    const std::pair<const char*, uint64_t> left_out[] = {{"late", state.late},
                                                         {"ungrouped", state.ungrouped},
                                                         {"undecidable", state.undecidable},
                                                         {"evicted", state.evicted_events}};
    for (const auto& [reason, count] : left_out) {
        out->Counter("stockade_correlation_events_left_out_total",
                     "Events that correlations could not count, or had to forget, by why.",
                     static_cast<double>(count), {{"reason", reason}});
    }
    out->Counter("stockade_correlation_groups_evicted_total", "Groups of correlations that made room.",
                 static_cast<double>(state.evicted_groups));
    out->Gauge("stockade_correlation_groups", "Groups that correlations remember.",
               static_cast<double>(counters.groups));
    out->Gauge("stockade_correlation_events", "Events that correlations remember.",
               static_cast<double>(counters.group_events));
    for (const auto& [key, count] : agent.actions) {
        out->Counter("stockade_actions_total", "What was done for a rule or by hand, and with which result.",
                     static_cast<double>(count), {{"action", key.first}, {"result", key.second}});
    }
    out->Add("stockade_response_duration_seconds",
             "From an event until what its rule asks for was done; of a kill: until nothing was left.",
             agent.response.Read());
}

void CountDns(const dns::StubCounters& counters, metrics::Families* out) {
#define X(name, text)                                                                          \
    out->Counter("stockade_dns_stub_total",                                                    \
                 "What the DNS stub did and met, by what; dns/stub_counters.h explains each.", \
                 static_cast<double>(counters.name), {{"what", #name}});
    SK_STUB_COUNTERS(X)
#undef X
}

void CountStore(const pipeline::StoreCounters& counters, bool healthy, uint64_t max_bytes,
                metrics::Families* out) {
    const pipeline::SpoolCounters& spool = counters.spool;
    out->Gauge("stockade_spool_healthy", "1 while the spool takes what is written to it.", healthy);
    out->Gauge("stockade_spool_bytes", "Bytes of the spool on disk.", static_cast<double>(spool.bytes));
    out->Gauge("stockade_spool_max_bytes", "Bytes that the spool may have.", static_cast<double>(max_bytes));
    out->Counter("stockade_events_stored_total", "Events that were written to the spool.",
                 static_cast<double>(counters.stored));
    const std::pair<const char*, uint64_t> lost[] = {{"full", spool.lost_full},
                                                     {"damaged", spool.lost_damaged},
                                                     {"rejected", spool.rejected},
                                                     {"refused", counters.refused},
                                                     {"own_overflow", counters.overflowed}};
    for (const auto& [reason, count] : lost) {
        out->Counter("stockade_spool_events_lost_total",
                     "Events that the spool gave up, by why; each is told by an event.",
                     static_cast<double>(count), {{"reason", reason}});
    }
    out->Counter("stockade_spool_events_left_out_total", "Events that the policies' record level leaves out.",
                 static_cast<double>(counters.left_out));
    out->Counter("stockade_spool_torn_records_total",
                 "Records cut by a crash, found at a start; the rings have them still.",
                 static_cast<double>(spool.torn));
    out->Counter("stockade_spool_records_again_total",
                 "Records that were read from the rings once more, and known already.",
                 static_cast<double>(spool.again));
    out->Counter("stockade_spool_append_refused_total",
                 "Times that the disk took nothing and memory had no room.",
                 static_cast<double>(spool.refused));
    for (const auto& [error, count] : spool.write_errors) {
        out->Counter("stockade_spool_io_errors_total", "Failures of the spool's files, by errno.",
                     static_cast<double>(count), {{"errno", error}});
    }
    for (const auto& [name, pump] : counters.readers) {
        out->Gauge("stockade_exporter_up", "1 while the exporter's peer does not complain.", pump.up,
                   {{"exporter", name}});
    }
    for (const auto& [name, pump] : counters.readers) {
        const std::pair<const char*, uint64_t> results[] = {{"sent", pump.sent},
                                                            {"delivered", pump.delivered},
                                                            {"rejected", pump.rejected},
                                                            {"failed", pump.failed}};
        for (const auto& [result, count] : results) {
            out->Counter("stockade_exporter_events_total",
                         "Events by exporter and what became of them; failed ones are sent again.",
                         static_cast<double>(count), {{"exporter", name}, {"result", result}});
        }
    }
    for (const auto& [name, pump] : counters.readers) {
        out->Counter("stockade_exporter_remade_total", "Times that an exporter broke and was made anew.",
                     static_cast<double>(pump.remade), {{"exporter", name}});
    }
    for (const auto& [name, pump] : counters.readers) {
        out->Add("stockade_delivery_duration_seconds",
                 "From an operation in the kernel until its event is delivered.", pump.delivery,
                 {{"exporter", name}});
    }
}

void CountPods(const PodCounts& pods, bool up, const nri::Link::Counters& link, metrics::Families* out) {
    out->Gauge("stockade_nri_up", "1 while the container runtime asks the agent about its containers.", up);
    const std::pair<const char*, uint64_t> containers[] = {{"created", pods.created},
                                                           {"other", pods.others},
                                                           {"bound", pods.bound},
                                                           {"create_refused", pods.refused_creates},
                                                           {"start_refused", pods.refused_starts},
                                                           {"bound_late", pods.late_starts},
                                                           {"deny_all", pods.deny_all},
                                                           {"unprotected", pods.unprotected},
                                                           {"unguarded", pods.unbindable}};
    for (const auto& [what, count] : containers) {
        out->Counter("stockade_pod_containers_total",
                     "Containers that the runtime told of, by what became of them; docs/kubernetes.md explains each.",
                     static_cast<double>(count), {{"what", what}});
    }
    out->Counter("stockade_pod_labels_left_out_total", "Labels of pods beyond those that a sandbox can have.",
                 static_cast<double>(pods.labels_left_out));
    const std::pair<const char*, uint64_t> calls[] = {{"call", link.session.calls},
                                                      {"refused", link.session.refused_calls},
                                                      {"unknown_method", link.session.unknown_methods},
                                                      {"malformed", link.session.malformed_messages},
                                                      {"stray_frame", link.session.stray_frames},
                                                      {"broken_stream", link.session.broken_streams},
                                                      {"overdue", link.overdue_calls},
                                                      {"dropped", link.dropped_calls},
                                                      {"answered_twice", link.session.late_answers}};
    for (const auto& [what, count] : calls) {
        out->Counter("stockade_nri_calls_total",
                     "Calls of the container runtime, and what was wrong with them; overdue = refused for want of an answer in time.",
                     static_cast<double>(count), {{"what", what}});
    }
    const std::pair<const char*, uint64_t> connections[] = {
        {"up", link.connections}, {"lost", link.lost_connections}, {"failed", link.failed_handshakes}};
    for (const auto& [what, count] : connections) {
        out->Counter("stockade_nri_connections_total", "Connections to the container runtime, by what became of them.",
                     static_cast<double>(count), {{"what", what}});
    }
    out->Add("stockade_nri_answer_seconds", "How long the agent took for an answer to the container runtime.", pods.answer.Read());
}

void CountProcess(metrics::Families* out) {
    rusage usage{};
    (void)getrusage(RUSAGE_SELF, &usage);  // zeros then
    out->Counter("process_cpu_seconds_total", "CPU time of the agent.",
                 Seconds(usage.ru_utime) + Seconds(usage.ru_stime));
    out->Gauge(
        "process_resident_memory_bytes", "Resident memory of the agent, mapped rings included.",
        static_cast<double>(Field("/proc/self/statm", 1)) * static_cast<double>(sysconf(_SC_PAGESIZE)));
    std::error_code error;
    const auto descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd", error), {});
    out->Gauge("process_open_fds", "Open descriptors of the agent.", static_cast<double>(descriptors));
    rlimit limit{};
    (void)getrlimit(RLIMIT_NOFILE, &limit);  // zero then
    out->Gauge("process_max_fds", "How many it may have.", static_cast<double>(limit.rlim_cur));
    static const uint64_t started_ns = WallNow();  // of the first call, which is that of the agent's start
    out->Gauge("process_start_time_seconds", "When the agent started, since the epoch.",
               static_cast<double>(started_ns) / 1e9);
}

}  // namespace stockade::cmd
