#include "userspace/cmd/policy_run.h"

#include <fcntl.h>
#include <unistd.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/json.h"
#include "userspace/cmd/policy_load.h"
#include "userspace/policy/diff.h"
#include "userspace/policy/judge.h"
#include "userspace/policy/lint.h"
#include "userspace/policy/parse.h"

namespace stockade::cmd {
namespace {

using policy::Diagnostic;
using policy::Severity;

void Print(const std::vector<Diagnostic>& diagnostics, std::string& to) {
    for (const Diagnostic& diagnostic : diagnostics) absl::StrAppend(&to, policy::ToString(diagnostic), "\n");
}

// True when the documents cannot be used. Errors, and installed files that were left out, on
// standard error; the question's own warnings are `check`'s business.
bool Unusable(const LoadedPolicies& loaded, PolicyOutput& io) {
    const bool errors = policy::HasErrors(loaded.diagnostics);
    for (const Diagnostic& diagnostic : loaded.diagnostics) {
        if (!errors && !absl::StartsWith(diagnostic.message, "not used: ")) continue;
        absl::StrAppend(&io.err, policy::ToString(diagnostic), "\n");
    }
    return errors;
}

StatusOr<Fd> OpenRoot(const std::string& root) {
    if (root.empty()) return Fd();
    return Fd::Open(root, O_PATH | O_DIRECTORY);
}

bool IsFile(const std::string& name) { return access(name.c_str(), F_OK) == 0; }

// The policy that a file or a name stands for.
std::optional<policy::ResolvedPolicy> ResolveOne(const std::string& what, const PolicyArgs& args,
                                                 PolicyOutput& io) {
    const bool is_file = IsFile(what);
    LoadedPolicies loaded = LoadPolicies(
        is_file ? std::vector<std::string>{what} : std::vector<std::string>{}, args.with, args.dirs);
    if (Unusable(loaded, io)) return std::nullopt;
    if (is_file && loaded.policies.size() != 1) {
        absl::StrAppend(&io.err, what, ": ", loaded.policies.size(),
                        " policies in this file; give it with --with, and the name of one with --policy\n");
        return std::nullopt;
    }
    std::vector<Diagnostic> diagnostics;
    std::optional<policy::ResolvedPolicy> resolved =
        loaded.library.Resolve(is_file ? loaded.policies[0].name : what, diagnostics);
    Print(diagnostics, io.err);
    if (!is_file && !loaded.library.Has(what)) {
        absl::StrAppend(&io.err, what, ": looked for as a file and as a name in ",
                        absl::StrJoin(args.dirs, ", "), "\n");
    }
    return resolved;
}

std::string DecisionJson(const policy::TestCase& question, const policy::Decision& d) {
    std::vector<std::string> notes;
    for (const std::string& note : d.notes) notes.push_back(JsonString(note));
    JsonObject object;
    object.Add("operation", std::string(policy::CaseName(question.kind)))
        .Add("asked", question.object)
        .Add("object", d.object);
    if (question.uid) object.Add("uid", *question.uid);
    static constexpr const char* kVerdicts[] = {"allow", "observe", "deny", "kill-process", "kill-sandbox"};
    return object.Add("allowed", d.allowed)
        .Add("enforced", d.enforced)
        .Add("violation", kVerdicts[d.violation])
        .Add("list", d.list)
        .Add("rule", d.rule)
        .Add("policy", d.policy)
        .Add("file", d.at.file)
        .Add("line", d.at.line)
        .Add("column", d.at.column)
        .Add("reason", d.reason)
        .AddRaw("notes", JsonArray(notes))
        .Done();
}

std::string DecisionText(const policy::TestCase& question, const policy::Decision& d) {
    static constexpr const char* kVerdicts[] = {"allow", "observe", "deny", "kill-process", "kill-sandbox"};
    std::string text = absl::StrCat(d.allowed ? "allowed" : "refused", "  ", policy::CaseName(question.kind),
                                    " ", question.object);
    if (question.uid) absl::StrAppend(&text, " as uid ", *question.uid);
    absl::StrAppend(&text, "\n  ", d.reason, "\n");
    if (!d.allowed)
        absl::StrAppend(&text, "  violation: ", kVerdicts[d.violation], d.enforced ? "" : " (not enforced)",
                        "\n");
    for (const std::string& note : d.notes) absl::StrAppend(&text, "  note: ", note, "\n");
    return text;
}

std::string ResolutionsText(const policy::CompiledPolicy& compiled) {
    std::string text;
    for (const policy::Resolution& r : compiled.resolutions) {
        absl::StrAppend(
            &text, "  ", policy::ToString(r.at), ": ", r.pattern,
            r.target.empty() ? absl::StrCat(" ", r.note) : absl::StrCat(" also covers ", r.target), "\n");
    }
    return text.empty() ? text : absl::StrCat("links:\n", text);
}

std::string ExplainJson(const policy::Judge& judge, const std::vector<std::string>& decisions) {
    std::vector<std::string> links, bases;
    for (const policy::Resolution& r : judge.compiled().resolutions) {
        links.push_back(JsonObject()
                            .Add("pattern", r.pattern)
                            .Add("target", r.target)
                            .Add("note", r.note)
                            .Add("file", r.at.file)
                            .Add("line", r.at.line)
                            .Done());
    }
    for (const std::string& base : judge.policy().bases) bases.push_back(JsonString(base));
    return JsonObject()
        .Add("policy", judge.policy().name)
        .Add("hash", judge.compiled().hash_hex)
        .AddRaw("extends", JsonArray(bases))
        .AddRaw("decisions", JsonArray(decisions))
        .AddRaw("links", JsonArray(links))
        .Done();
}

// Everything that `check` finds in documents that parse.
void CheckResolved(const LoadedPolicies& loaded, std::vector<Diagnostic>& out) {
    std::set<std::string> names;
    for (policy::SandboxPolicy document : loaded.policies) {
        if (document.name.empty()) continue;
        std::optional<policy::PolicyLibrary> other;
        if (!names.insert(document.name).second) {
            // The error is told; what else there is to say of this one is found under a name of its own.
            absl::StrAppend(&document.name, "#", names.size());
            other = loaded.library;
            other->Add({document}, out);
        }
        std::optional<policy::ResolvedPolicy> resolved =
            (other ? *other : loaded.library).Resolve(document.name, out);
        if (!resolved) continue;
        for (Diagnostic& warning : policy::Lint(document, *resolved)) out.push_back(std::move(warning));
        StatusOr<policy::Judge> judge = policy::Judge::Create(*resolved);
        if (!judge.ok())
            out.push_back({Severity::kError, document.at, std::string(judge.status().message())});
    }
    for (const policy::PolicyTest& test : loaded.tests) {
        if (!test.policy.text.empty())
            (void)loaded.library.Resolve(test.policy.text, out);  // the error is what is wanted
    }
}

int RunCases(const std::string& name, const std::vector<policy::TestCase>& cases,
             const LoadedPolicies& loaded, int root_fd, std::vector<std::string>& json, PolicyOutput& io) {
    StatusOr<policy::ResolvedPolicy> resolved = loaded.library.Resolve(name);
    StatusOr<policy::Judge> judge =
        resolved.ok() ? policy::Judge::Create(*std::move(resolved), root_fd) : resolved.status();
    if (!judge.ok()) {
        absl::StrAppend(&io.err, name, ": ", judge.status().message(), "\n");
        return kPolicyUsage;
    }
    int failed = 0;
    for (const policy::CaseResult& result : judge->Run(cases)) {
        failed += result.passed ? 0 : 1;
        json.push_back(JsonObject()
                           .Add("policy", name)
                           .Add("passed", result.passed)
                           .AddRaw("decision", DecisionJson(result.test, result.decision))
                           .Done());
        if (result.passed) continue;
        absl::StrAppend(&io.out, policy::ToString(result.test.at),
                        ": failed: ", policy::CaseName(result.test.kind), " ", result.test.object,
                        " should be ", result.test.expect_allowed ? "allowed" : "refused", ", but ",
                        result.decision.reason, "\n");
    }
    absl::StrAppend(&io.out, name, ": ", cases.size() - failed, " passed, ", failed, " failed\n");
    return failed == 0 ? kPolicyOk : kPolicyFindings;
}

// "refused" for what is no address would be an answer to another question.
Status CheckQuestion(const policy::TestCase& question) {
    if (question.kind == policy::CaseKind::kConnect || question.kind == policy::CaseKind::kBind)
        return Annotate(policy::ParseAddressPort(question.object).status(),
                        absl::StrCat("--", policy::CaseName(question.kind)));
    if (question.kind == policy::CaseKind::kUnix && question.object.substr(0, 1) != "/" &&
        question.object.substr(0, 1) != "@") {
        return absl::InvalidArgumentError(absl::StrCat(
            "--unix: '", question.object, "' is neither an absolute path nor '@' and an abstract name"));
    }
    return absl::OkStatus();
}

}  // namespace

int PolicyCheck(const PolicyArgs& args, PolicyOutput& io) {
    LoadedPolicies loaded = LoadPolicies(args.files, args.with, args.dirs);
    std::vector<Diagnostic> found = loaded.diagnostics;
    CheckResolved(loaded, found);
    int errors = 0, warnings = 0;
    std::vector<std::string> json;
    for (const Diagnostic& d : found) {
        (d.severity == Severity::kError ? errors : warnings) += 1;
        json.push_back(DiagnosticJson(d));
    }
    if (args.json) {
        io.out = JsonObject()
                     .Add("errors", errors)
                     .Add("warnings", warnings)
                     .AddRaw("diagnostics", JsonArray(json))
                     .Done() +
                 "\n";
    } else {
        Print(found, io.out);
        absl::StrAppend(&io.out, loaded.policies.size(), " policies, ", errors, " errors, ", warnings,
                        " warnings\n");
    }
    return errors > 0 || (args.strict && warnings > 0) ? kPolicyFindings : kPolicyOk;
}

int PolicyExplain(const PolicyArgs& args, PolicyOutput& io) {
    for (const policy::TestCase& question : args.questions) {
        const Status askable = CheckQuestion(question);
        if (askable.ok()) continue;
        absl::StrAppend(&io.err, askable.message(), "\n");
        return kPolicyUsage;
    }
    std::optional<policy::ResolvedPolicy> resolved = ResolveOne(args.policy, args, io);
    if (!resolved) return kPolicyUsage;
    StatusOr<Fd> root = OpenRoot(args.root);
    StatusOr<policy::Judge> judge =
        root.ok() ? policy::Judge::Create(*std::move(resolved), root->get()) : root.status();
    if (!judge.ok()) {
        absl::StrAppend(&io.err, judge.status().message(), "\n");
        return kPolicyUsage;
    }
    bool refused = false;
    std::vector<std::string> json;
    for (const policy::TestCase& question : args.questions) {
        const policy::Decision decision = judge->Decide(question);
        refused |= !decision.allowed;
        json.push_back(DecisionJson(question, decision));
        if (!args.json) io.out += DecisionText(question, decision);
    }
    if (args.json) {
        io.out = ExplainJson(*judge, json) + "\n";
    } else {
        io.out += ResolutionsText(judge->compiled());
    }
    return refused ? kPolicyFindings : kPolicyOk;
}

int PolicyTestCases(const PolicyArgs& args, PolicyOutput& io) {
    LoadedPolicies loaded = LoadPolicies(args.files, args.with, args.dirs);
    if (Unusable(loaded, io)) return kPolicyUsage;
    StatusOr<Fd> root = OpenRoot(args.root);
    if (!root.ok()) {
        absl::StrAppend(&io.err, root.status().message(), "\n");
        return kPolicyUsage;
    }
    int status = kPolicyOk;
    size_t cases = 0;
    std::vector<std::string> json;
    const auto run = [&](const std::string& name, const std::vector<policy::TestCase>& tests) {
        if (tests.empty()) return;
        cases += tests.size();
        status = std::max(status, RunCases(name, tests, loaded, root->get(), json, io));
    };
    for (const policy::SandboxPolicy& document : loaded.policies) run(document.name, document.tests);
    for (const policy::PolicyTest& test : loaded.tests) run(test.policy.text, test.cases);
    if (cases == 0) {
        // A file without cases that passes would hide that nothing was tested.
        absl::StrAppend(&io.err, "no tests in these files; add a `tests:` section\n");
        return kPolicyUsage;
    }
    if (args.json) io.out = JsonArray(json) + "\n";
    return status;
}

int PolicyDiff(const PolicyArgs& args, PolicyOutput& io) {
    std::optional<policy::ResolvedPolicy> from = ResolveOne(args.files[0], args, io);
    std::optional<policy::ResolvedPolicy> to = ResolveOne(args.files[1], args, io);
    if (!from || !to) return kPolicyUsage;
    StatusOr<std::vector<policy::Change>> changes = policy::Diff(*from, *to);
    if (!changes.ok()) {
        absl::StrAppend(&io.err, changes.status().message(), "\n");
        return kPolicyUsage;
    }
    std::vector<std::string> json;
    static constexpr const char* kBecomes[] = {"allowed", "refused", "changed"};
    for (const policy::Change& c : *changes) {
        json.push_back(JsonObject()
                           .Add("becomes", kBecomes[c.kind])
                           .Add("what", c.what)
                           .Add("object", c.object)
                           .Add("rule", c.rule)
                           .Add("file", c.at.file)
                           .Add("line", c.at.line)
                           .Add("column", c.at.column)
                           .Done());
        if (args.json) continue;
        static constexpr const char* kMarks[] = {"+ allowed  ", "- refused  ", "~ changed  "};
        absl::StrAppend(&io.out, kMarks[c.kind], c.what, " ", c.object);
        if (!c.rule.empty()) absl::StrAppend(&io.out, "  by '", c.rule, "' (", policy::ToString(c.at), ")");
        io.out += "\n";
    }
    if (args.json) io.out = JsonArray(json) + "\n";
    return changes->empty() ? kPolicyOk : kPolicyFindings;
}

}  // namespace stockade::cmd
