// `stockade policy learn`: a policy from what runs did.
#include "absl/strings/str_cat.h"
#include "userspace/cmd/event_file.h"
#include "userspace/cmd/policy_run.h"
#include "userspace/policy/judge.h"
#include "userspace/policy/learn.h"
#include "userspace/policy/parse.h"

namespace stockade::cmd {
namespace {

// Lines that are no event are told up to this many; all are counted.
constexpr uint64_t kMaxLinesTold = 5;
// What is refused all the same, too.
constexpr size_t kMaxRefusedTold = 20;

// What was seen and is refused by the proposal; it is asked as any reader of the file would ask.
StatusOr<std::vector<std::string>> StillRefused(const std::string& yaml, const policy::Proposal& proposal, const std::string& name) {
    policy::ParseResult parsed = policy::ParseFiles({{"proposal", yaml}});
    policy::PolicyLibrary library;
    library.Add(std::move(parsed.policies), parsed.diagnostics);
    for (const policy::Diagnostic& diagnostic : parsed.diagnostics) {
        if (diagnostic.severity == policy::Severity::kError) return absl::InternalError(policy::ToString(diagnostic));
    }
    SK_ASSIGN_OR_RETURN(policy::ResolvedPolicy resolved, library.Resolve(name));
    SK_ASSIGN_OR_RETURN(const policy::Judge judge, policy::Judge::Create(std::move(resolved)));
    std::vector<std::string> refused;
    for (const policy::TestCase& seen : proposal.seen) {
        if (!judge.Decide(seen).allowed) refused.push_back(absl::StrCat(policy::CaseName(seen.kind), " ", seen.object));
    }
    return refused;
}

}  // namespace

int PolicyLearn(const PolicyArgs& args, PolicyOutput& io) {
    policy::Learner learner;
    uint64_t bad_lines = 0;
    for (const std::string& path : args.files) {
        const auto each = [&](const v1::Event& event) {
            const v1::Sandbox& sandbox = event.sandbox();
            if (args.session.empty() || sandbox.session() == args.session || sandbox.id() == args.session) learner.Add(event);
        };
        const Status status = ReadEvents(path, each, [&](const std::string& why) {
            if (++bad_lines <= kMaxLinesTold) absl::StrAppend(&io.err, why, "\n");
        });
        if (!status.ok()) {
            absl::StrAppend(&io.err, status.message(), "\n");
            return kPolicyUsage;
        }
    }
    if (bad_lines > 0) absl::StrAppend(&io.err, bad_lines, " lines are no events\n");
    const policy::Proposal proposal = learner.Propose();
    if (proposal.events == 0) {
        absl::StrAppend(&io.err, "no operation of a sandbox is in these events: a policy records them with `record`, docs/policy.md has one\n");
        return kPolicyUsage;
    }
    io.out = policy::ToYaml(proposal, {.name = args.policy});
    const StatusOr<std::vector<std::string>> refused = StillRefused(io.out, proposal, args.policy);
    if (!refused.ok()) {
        absl::StrAppend(&io.err, "the proposal is no policy: ", refused.status().message(), "\n");
        return kPolicyUsage;
    }
    for (size_t i = 0; i < refused->size() && i < kMaxRefusedTold; ++i) absl::StrAppend(&io.err, "not allowed by it: ", (*refused)[i], "\n");
    if (refused->size() > kMaxRefusedTold) absl::StrAppend(&io.err, "and ", refused->size() - kMaxRefusedTold, " more\n");
    return refused->empty() ? kPolicyOk : kPolicyFindings;
}

}  // namespace stockade::cmd
