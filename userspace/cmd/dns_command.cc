#include "userspace/cmd/dns_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/client.h"
#include "userspace/cmd/dns_report.h"
#include "userspace/cmd/gzip_source.h"
#include "userspace/dns/knowledge.h"
#include "userspace/dns/replay.h"

namespace stockade {
namespace {

constexpr int kNothing = 0, kBlocked = 1, kUnreadable = 2;
// A list of all registered domains would fit.
constexpr size_t kMaxListBytes = 64 * 1024 * 1024;
constexpr size_t kQuietRows = 20;

struct DnsFlags {
    std::string file;
    std::string output = "text";
    bool all = false;
    std::vector<std::string> budgets;
    std::vector<std::string> internal;
    std::vector<std::string> grants;
    std::string ranked, suffix_list, model;
    std::string fast_forward;
};

StatusOr<std::string> ReadList(const std::string& path) {
    if (path.empty()) return std::string();
    return ReadFile(path, kMaxListBytes);
}

StatusOr<dns::Knowledge> KnowledgeOf(const DnsFlags& flags) {
    dns::KnowledgeTexts texts;
    // A client of a recording is a person's machine more often than a session: 2 KiB for all it does
    // is no budget for a browser.
    texts.budgets.total = dns::Budgets::kUnlimited;
    SK_ASSIGN_OR_RETURN(texts.suffix_list, ReadList(flags.suffix_list));
    SK_ASSIGN_OR_RETURN(texts.model, ReadList(flags.model));
    if (flags.ranked == "-") {
        texts.ranked = "-";
    } else {
        SK_ASSIGN_OR_RETURN(texts.ranked, ReadList(flags.ranked));
    }
    texts.internal = flags.internal;
    for (const std::string& budget : flags.budgets)
        SK_RETURN_IF_ERROR(Annotate(dns::ParseBudgets(budget, &texts.budgets), "--budget"));
    for (const std::string& grant : flags.grants) {
        const std::pair<std::string, std::string> parts = absl::StrSplit(grant, absl::MaxSplits('=', 1));
        const StatusOr<uint32_t> bytes = dns::ParseBudget(parts.second);
        if (!bytes.ok())
            return Annotate(bytes.status(), absl::StrCat("--grant takes ZONE=BYTES, not ", grant));
        texts.granted.emplace_back(parts.first, *bytes);
    }
    return dns::MakeKnowledge(texts);
}

StatusOr<uint64_t> StepOf(const std::string& text) {
    if (text.empty()) return 0;
    absl::Duration step;
    if (!absl::ParseDuration(text, &step) || step <= absl::ZeroDuration() || step > absl::Hours(24 * 365))
        return absl::InvalidArgumentError(
            absl::StrCat("--fast-forward ", text, ": not a time like 10m, at most a year"));
    return static_cast<uint64_t>(absl::ToInt64Nanoseconds(step));
}

StatusOr<int> Meter(const DnsFlags& flags) {
    SK_ASSIGN_OR_RETURN(const dns::Knowledge knowledge, KnowledgeOf(flags));
    SK_ASSIGN_OR_RETURN(const uint64_t step_ns, StepOf(flags.fast_forward));
    const std::string name = flags.file == "-" ? "standard input" : flags.file;
    StatusOr<std::unique_ptr<cmd::GzipSource>> source = cmd::GzipSource::Open(flags.file);
    if (!source.ok()) return Annotate(source.status(), "dns meter");
    dns::Replay replay(knowledge, {.step_ns = step_ns});
    const Status read = replay.Read(**source);
    const std::string out = flags.output == "json"
                                ? cmd::DnsReportJson(replay)
                                : cmd::DnsReportText(replay, flags.all ? SIZE_MAX : kQuietRows);
    // What was read before a broken place is still worth seeing.
    SK_RETURN_IF_ERROR(Annotate(WriteAll(STDOUT_FILENO, out), "standard output"));
    if (!read.ok()) return Annotate(read, name);
    return cmd::AnythingBlocked(replay) ? kBlocked : kNothing;
}

void AddMeter(CLI::App& dns, int& exit_code) {
    auto flags = std::make_shared<DnsFlags>();  // lives as long as the callback
    CLI::App* meter = dns.add_subcommand(
        "meter",
        "What the DNS budget would do to recorded traffic: a pcap or pcapng file, a Zeek dns.log, or a list "
        "of "
        "names; also gzipped. Exit 0: nothing blocked or refused, 1: something, 2: the input is broken. "
        "Needs no root");
    meter->add_option("FILE", flags->file, "the file, or - for standard input")->required();
    meter->add_option("-o,--output", flags->output, "text or json")->check(CLI::IsMember({"text", "json"}));
    meter->add_flag("--all", flags->all, "text: all pairs, not only those with a verdict and the next 20");
    meter
        ->add_option("--budget", flags->budgets,
                     "zone=256B,ranked=4KiB,reverse=2KiB,total=none (a session has total=2KiB)")
        ->expected(1)
        ->take_all();
    meter->add_option("--ranked", flags->ranked,
                      "a file of well-known zones, one a line, in place of those built in; - for none");
    meter
        ->add_option("--internal", flags->internal,
                     "a zone of your own, or a search suffix: not charged (may be repeated)")
        ->expected(1)
        ->take_all();
    meter->add_option("--grant", flags->grants, "ZONE=BYTES: a budget of its own (may be repeated)")
        ->expected(1)
        ->take_all();
    meter->add_option("--suffix-list", flags->suffix_list,
                      "a public_suffix_list.dat, in place of the one built in");
    meter->add_option("--model", flags->model, "a code-length model, in place of the one built in");
    meter->add_option(
        "--fast-forward", flags->fast_forward,
        "10m: as if each query of a client came that long after its last one, whatever the file says");
    meter->callback([flags, &exit_code] {
        const StatusOr<int> done = Meter(*flags);
        if (done.ok()) {
            exit_code = *done;
            return;
        }
        (void)cmd::Complain(done.status());
        exit_code = kUnreadable;
    });
}

}  // namespace

void AddDnsCommand(CLI::App& app, int& exit_code) {
    CLI::App* dns = app.add_subcommand("dns", "The DNS information budget");
    dns->require_subcommand(1);
    AddMeter(*dns, exit_code);
}

}  // namespace stockade
