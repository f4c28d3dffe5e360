#include "userspace/timeline/describe.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/model/reason.h"

namespace stockade::timeline {
namespace {

std::string ProcessOf(const v1::Process& process) {
    if (process.pid() == 0) return "";
    const std::string& exe = process.exe();
    const std::string name = exe.empty() ? process.comm() : exe.substr(exe.rfind('/') + 1);
    return absl::StrCat(name, name.empty() ? "process " : " (", process.pid(), name.empty() ? "" : ")");
}

// "started" as a reader takes it who does not know our steps.
struct Words {
    const char* op;
    const char* text;
    Tone tone;
};
constexpr Words kSteps[] = {
    {"registered", "The sandbox was made", Tone::kStep},
    {"policy-bound", "The policy was bound", Tone::kStep},
    {"attested", "The kernel's coverage was attested", Tone::kStep},
    {"started", "The command may run", Tone::kStep},
    {"policy-swapped", "Another policy was bound", Tone::kStep},
    {"degraded", "The sandbox is degraded", Tone::kEnd},
    {"adopted", "Another agent took the sandbox over", Tone::kStep},
    {"condemned", "The kernel condemned the sandbox: nothing in it may go on", Tone::kEnd},
    {"entered", "A process came in from outside", Tone::kStep},
    {"kill-pending", "Some processes could not be ended yet", Tone::kEnd},
    {"killed", "All processes of the sandbox were killed", Tone::kEnd},
    {"exited", "The command ended", Tone::kStep},
    {"empty", "The last process was gone", Tone::kStep},
    {"destroyed", "The sandbox was removed, and nothing of it is left", Tone::kStep},
    {"evidence", "The evidence of the sandbox was closed", Tone::kStep},
    {"verified", "Removal and evidence were looked at", Tone::kStep},
    {"overrun", "The removal took longer than it may", Tone::kEnd},
};

void DescribeLifecycle(const v1::Event& event, Row* row) {
    const v1::Lifecycle& life = event.lifecycle();
    row->text = life.op();
    for (const Words& words : kSteps) {
        if (life.op() != words.op) continue;
        row->text = words.text;
        row->tone = words.tone;
    }
    std::vector<std::string> details;
    if (life.has_exit_status()) details.push_back(absl::StrCat("exit status ", life.exit_status()));
    if (!life.detail().empty()) details.push_back(life.detail());
    for (const v1::Step& step : life.steps()) {
        if (step.boot_ns() < event.boot_ns() || step.boot_ns() == 0) continue;
        details.push_back(absl::StrCat(step.name(), " after ", Duration(step.boot_ns() - event.boot_ns())));
    }
    row->detail = absl::StrJoin(details, ", ");
    row->process = "";
}

void DescribeRefusal(const v1::Event& event, Row* row) {
    row->tone = Tone::kRefused;
    row->text = event.reason().empty() ? absl::StrCat("refused: ", event.code()) : event.reason();
    std::vector<std::string> details = {event.code()};
    if (event.dry_run()) {
        details.push_back("observed only: it happened");
    } else {
        if (!event.outcome().empty()) details.push_back(event.outcome());
        if (!event.lock().empty() && event.lock() != "none") details.push_back(absl::StrCat("by ", event.lock()));
        if (absl::StartsWith(event.verdict(), "kill")) details.push_back(event.verdict());
    }
    row->detail = absl::StrJoin(details, ", ");
}

void DescribeExec(const v1::Exec& exec, Row* row) {
    if (exec.role() != "program") return;  // interpreters and mapped libraries are no commands
    row->text = absl::StrCat("Ran ", exec.argv().empty() ? exec.path() : CommandLine(exec.argv()));
    if (exec.argv_truncated()) absl::StrAppend(&row->text, " ...");
    row->detail = exec.path();
}

void DescribeExit(const v1::Exit& exit, Row* row) {
    if (exit.signal() != 0) {
        row->text = absl::StrCat("The process was ended by signal ", exit.signal());
        row->tone = Tone::kEnd;
    } else if (exit.code() != 0) {
        row->text = absl::StrCat("The process ended with status ", exit.code());
    }
}

void DescribeFinding(const v1::Finding& finding, Row* row) {
    row->tone = Tone::kFinding;
    row->text = absl::StrCat(finding.severity(), ": ", finding.title().empty() ? finding.rule() : finding.title());
    row->detail = finding.detail();
    if (!finding.evidence().empty())
        absl::StrAppend(&row->detail, row->detail.empty() ? "" : "; ", "rests on ", finding.evidence_size(), " events");
}

void DescribeAction(const v1::Action& action, Row* row) {
    row->tone = action.result() == "done" ? Tone::kEnd : Tone::kFinding;
    const std::string who = action.has_actor_uid() ? absl::StrCat("a person (uid ", action.actor_uid(), ")")
                                                   : absl::StrCat("the rule ", action.title().empty() ? action.rule() : action.title());
    row->text = absl::StrCat(action.action(), ": ", action.result(), ", for ", who);
    row->detail = action.detail();
    if (action.latency_ns() > 0) absl::StrAppend(&row->detail, row->detail.empty() ? "" : "; ", "after ", Duration(action.latency_ns()));
}

void DescribeLost(const v1::Lost& lost, Row* row) {
    row->tone = Tone::kLost;
    row->text = absl::StrCat(lost.count(), " events are missing");
    row->detail = absl::StrCat("lost at ", lost.stage(), ": ", lost.cause());
}

}  // namespace

std::string VerbOf(const v1::Event& event) {
    if (event.has_dns()) return "Asked for";
    if (event.has_exec()) return "Loaded code of";
    if (event.has_net()) {
        const std::string& op = event.net().op();
        if (op == "connect") return "Connected to";
        if (op == "send") return "Sent to";
        if (op == "bind" || op == "listen") return "Listened at";
        return absl::StrCat("Made (", op, ")");
    }
    const std::string& op = event.file().op();
    if (op == "open-read") return "Read";
    if (op == "open-directory") return "Listed";
    if (op == "open-write" || op == "truncate" || op == "create") return "Wrote";
    if (op == "unlink" || op == "rmdir") return "Removed";
    return absl::StrCat("Changed (", op, ")");
}

std::string ThingsOf(const v1::Event& event) {
    if (event.has_dns()) return "names";
    if (event.has_net()) return "addresses";
    return event.file().op() == "open-directory" ? "directories" : "files";
}

Row Describe(const v1::Event& event) {
    Row row;
    row.wall_ns = static_cast<uint64_t>(event.time().seconds()) * 1'000'000'000 + static_cast<uint64_t>(event.time().nanos());
    row.kind = event.kind();
    row.tone = Tone::kWork;
    row.process = ProcessOf(event.process());
    row.ids.push_back(event.id());
    switch (event.payload_case()) {
        case v1::Event::kLifecycle: row.tone = Tone::kStep; DescribeLifecycle(event, &row); return row;
        case v1::Event::kFinding: DescribeFinding(event.finding(), &row); return row;
        case v1::Event::kAction: DescribeAction(event.action(), &row); return row;
        case v1::Event::kLost: DescribeLost(event.lost(), &row); return row;
        case v1::Event::kSummary:
        case v1::Event::kSeal:
        case v1::Event::kRepeat: return row;
        default: break;
    }
    if (model::IsRefusal(event) || event.dry_run()) {
        DescribeRefusal(event, &row);
    } else if (event.has_exec()) {
        DescribeExec(event.exec(), &row);
    } else if (event.has_exit()) {
        DescribeExit(event.exit(), &row);
    }
    return row;
}

}  // namespace stockade::timeline
