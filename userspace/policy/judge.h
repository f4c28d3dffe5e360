// Questions to a policy, for `policy explain` and `policy test`: the verdict comes from the
// compiled cells, the reason from its rules.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/policy/compile.h"
#include "userspace/policy/document.h"
#include "userspace/policy/evaluate.h"
#include "userspace/policy/expand.h"

namespace stockade::policy {

struct Decision {
    bool allowed = false;
    // False: the section is absent or the mode is observe, so a refusal would only be recorded.
    bool enforced = true;
    std::string object;                      // as judged: symbolic links followed
    std::string section;                     // "exec", "files", "network"
    sk_verdict violation = SK_VERDICT_DENY;  // what follows a refusal
    std::string rule;                        // the deciding rule as written; empty = none matches
    std::string list;                        // "files.deny"
    std::string policy;                      // the document that holds it
    Position at;
    std::string reason;  // one sentence
    std::vector<std::string> notes;
};

struct CaseResult {
    TestCase test;
    Decision decision;
    bool passed = false;
};

// Owns everything it needs; move-only users keep it as long as they ask.
class Judge {
  public:
    // root_fd as in CompileOptions: questions' paths are followed through the same root.
    static StatusOr<Judge> Create(ResolvedPolicy policy, int root_fd = -1);

    Decision Decide(const TestCase& question) const;
    std::vector<CaseResult> Run(const std::vector<TestCase>& cases) const;

    const ResolvedPolicy& policy() const { return policy_; }
    const CompiledPolicy& compiled() const { return compiled_; }

  private:
    Judge() = default;
    PolicyView View() const { return {compiled_.cells, &keys_}; }
    void DecidePath(const TestCase& question, uint32_t op, Decision& out) const;
    void ExplainPath(uint32_t op, Decision& out) const;
    void DecideConnect(const TestCase& question, Decision& out) const;
    void DecideUnix(const TestCase& question, Decision& out) const;
    void DecideBind(const TestCase& question, Decision& out) const;
    void DecideName(const TestCase& question, Decision& out) const;

    ResolvedPolicy policy_;
    CompiledPolicy compiled_;
    Expansion expansion_;
    sk_hash_keys keys_{};
    int root_fd_ = -1;
};

// "exec", "read", ... as the document and the command line call them.
absl::string_view CaseName(CaseKind kind);

}  // namespace stockade::policy
