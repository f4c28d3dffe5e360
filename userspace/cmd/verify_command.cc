#include "userspace/cmd/verify_command.h"

#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"
#include "userspace/base/log.h"
#include "userspace/cmd/client.h"
#include "userspace/cmd/json.h"
#include "userspace/cmd/verify_topics.h"
#include "userspace/pipeline/verify.h"

namespace stockade::cmd {
namespace {

constexpr int kFaulty = 1;
constexpr int kIncomplete = 2;
// Lines that are no event are shown up to this many; all are counted.
constexpr uint64_t kMaxComplaints = 5;

struct VerifyFlags {
    std::vector<std::string> files;
    std::string kafka;
    std::string topic_prefix = "stockade";
    std::vector<std::string> kafka_options;
    std::string output = "text";
    std::string key;
};

const char* StateOf(const pipeline::ChainReport& report) {
    if (report.faulty()) return "FAULTY";
    if (report.complete()) return "complete";
    return report.sealed ? "losses told" : "open";
}

std::string Details(const pipeline::ChainReport& report) {
    std::string out;
    const auto add = [&](uint64_t count, const char* what) {
        if (count > 0) absl::StrAppend(&out, ", ", count, " ", what);
    };
    add(report.missing, "missing");
    add(report.conflicting, "with two contents");
    add(report.out_of_order, "out of order");
    add(report.broken, "that the chain does not fit");
    add(report.unnumbered, "without a number");
    add(report.unexplained, "kernel records that nothing explains");
    add(report.twice, "with another's kernel number");
    add(report.short_of_summary, "short of the closing summary");
    if (report.bad_seal) absl::StrAppend(&out, ", a seal that is wrong");
    if (report.first_fault > 0) absl::StrAppend(&out, ", first at ", report.first_fault);
    add(report.lost, "lost in the spool");
    add(report.lost_records, "records lost in the kernel");
    add(report.repeated, "repeated");
    add(report.suppressed, "records that repeats stand for");
    return out;
}

std::string Json(const pipeline::Verifier& verifier, const std::vector<pipeline::ChainReport>& reports,
                 int code) {
    std::vector<std::string> rows;
    for (const pipeline::ChainReport& report : reports) {
        JsonObject row;
        row.Add("node", report.node).Add("sandbox", report.sandbox).Add("state", StateOf(report));
        row.Add("events", report.events).Add("last", report.last).Add("missing", report.missing);
        row.Add("conflicting", report.conflicting)
            .Add("out_of_order", report.out_of_order)
            .Add("broken", report.broken);
        row.Add("unnumbered", report.unnumbered)
            .Add("bad_seal", report.bad_seal)
            .Add("first_fault", report.first_fault);
        row.Add("unexplained", report.unexplained)
            .Add("twice", report.twice)
            .Add("short_of_summary", report.short_of_summary)
            .Add("suppressed", report.suppressed);
        row.Add("lost", report.lost).Add("lost_records", report.lost_records).Add("sealed", report.sealed);
        rows.push_back(row.Add("repeated", report.repeated).Add("key", report.key).Done());
    }
    return JsonObject()
               .Add("exit_code", code)
               .Add("bad_lines", verifier.bad_lines())
               .AddRaw("chains", JsonArray(rows))
               .Done() +
           "\n";
}

std::string Text(const std::vector<pipeline::ChainReport>& reports) {
    std::string out;
    for (const pipeline::ChainReport& report : reports) {
        absl::StrAppendFormat(
            &out, "%-12s %s %s: %d events%s\n", StateOf(report), report.node.empty() ? "-" : report.node,
            report.sandbox.empty() ? "(the node's own)" : report.sandbox, report.events, Details(report));
    }
    return out;
}

Status Read(const std::string& path, pipeline::Verifier* verifier) {
    std::ifstream file;
    if (path != "-") file.open(path);
    if (path != "-" && !file) return ErrnoStatus(errno, absl::StrCat("read ", path));
    std::istream& in = path == "-" ? std::cin : file;
    std::string line;
    for (uint64_t number = 1; std::getline(in, line); ++number) {
        const Status status = verifier->AddLine(line);
        if (absl::IsResourceExhausted(status)) return Annotate(status, path);
        if (!status.ok() && verifier->bad_lines() <= kMaxComplaints)
            LogWarning(path, ":", number, ": ", status.message());
    }
    return in.bad() ? ErrnoStatus(errno, absl::StrCat("read ", path)) : absl::OkStatus();
}

// Each partition is a source of its own: order is kept in it, and not between them.
Status ReadKafka(const VerifyFlags& flags, pipeline::Verifier* verifier) {
    std::vector<std::string> options = {"hostport=" + flags.kafka, "topic=" + flags.topic_prefix};
    options.insert(options.end(), flags.kafka_options.begin(), flags.kafka_options.end());
    std::string where;
    uint64_t number = 0;
    return ReadTopicLines(options, [&](const std::string& line) {
        if (absl::StartsWith(line, "# ")) {
            const std::vector<std::string> words = absl::StrSplit(line, ' ');
            if (words.size() != 4) return absl::InternalError(absl::StrCat("not of a topic: ", line));
            where = absl::StrCat(words[1], "[", words[2], "]");
            number = 0;
            verifier->NextSource();
            if (words[3] != "0")
                LogWarning("verify: ", where, " begins at offset ", words[3], ": the broker has removed what was before, which will be missing");
            return absl::OkStatus();
        }
        const Status status = verifier->AddLine(line);
        ++number;
        if (absl::IsResourceExhausted(status)) return Annotate(status, where);
        if (!status.ok() && verifier->bad_lines() <= kMaxComplaints) LogWarning(where, ": message ", number, ": ", status.message());
        return absl::OkStatus();
    });
}

Status ReadAllSources(const VerifyFlags& flags, pipeline::Verifier* verifier) {
    if (!flags.kafka.empty()) SK_RETURN_IF_ERROR(ReadKafka(flags, verifier));
    for (const std::string& path : flags.files) {
        verifier->NextSource();
        SK_RETURN_IF_ERROR(Read(path, verifier));
    }
    return absl::OkStatus();
}

int Verify(const VerifyFlags& flags) {
    pipeline::Verifier verifier({.key = flags.key});
    if (const Status status = ReadAllSources(flags, &verifier); !status.ok()) {
        LogError("verify: ", status.message());
        return kOwnFailure;
    }
    const std::vector<pipeline::ChainReport> reports = verifier.Finish();
    int code = verifier.bad_lines() > 0 ? kFaulty : 0;
    for (const pipeline::ChainReport& report : reports) {
        if (report.faulty())
            code = kFaulty;
        else if (!report.complete() && !report.endless() && code == 0)
            code = kIncomplete;
    }
    // Nothing at all is not everything.
    if (reports.empty() && code == 0) code = kIncomplete;
    if (verifier.bad_lines() > 0) LogWarning("verify: ", verifier.bad_lines(), " lines are no events");
    const std::string out = flags.output == "json" ? Json(verifier, reports, code) : Text(reports);
    const Status shown = WriteAll(STDOUT_FILENO, out);
    if (!shown.ok()) LogError("verify: ", shown.message());
    return shown.ok() ? code : kOwnFailure;
}

}  // namespace

void AddVerifyCommand(CLI::App& app, int& exit_code) {
    auto flags = std::make_shared<VerifyFlags>();  // lives as long as the callback below
    CLI::App* verify =
        app.add_subcommand("verify", "Whether exported events are complete, in order and unchanged");
    verify->add_option("FILE", flags->files, "JSON lines as they were exported, a file for each topic; - is standard input");
    CLI::Option* kafka = verify->add_option("--kafka", flags->kafka, "Brokers, with commas: reads each topic to its end of now")
                             ->type_name("HOST:PORT");
    verify->add_option("--topic-prefix", flags->topic_prefix, "topic of the kafka exporter (stockade)")->needs(kafka)->type_name("T");
    verify
        ->add_option("--kafka-option", flags->kafka_options,
                     "another option of the kafka exporter, such as tls=true, cacertfile=FILE, topic.file=NAME")
        ->needs(kafka)
        ->type_name("KEY=VALUE");
    verify
        ->add_option("--key", flags->key,
                     "the node's public key (64 digits): without it the key in the seal is believed")
        ->check(CLI::Validator(
            [](std::string& key) {
                const bool ok = key.size() == 64 && key.find_first_not_of("0123456789abcdef") == key.npos;
                return ok ? std::string() : std::string("not 64 hexadecimal digits");
            },
            "HEX"));
    verify->add_option("-o,--output", flags->output, "text or json")->check(CLI::IsMember({"text", "json"}));
    verify->callback([flags, &exit_code] {
        if (flags->files.empty() && flags->kafka.empty()) throw CLI::RequiredError("FILE or --kafka");
        exit_code = Verify(*flags);
    });
}

}  // namespace stockade::cmd
