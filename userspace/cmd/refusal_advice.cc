#include "userspace/cmd/refusal_advice.h"

#include <fcntl.h>

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "bpf/wire/kinds.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/network_advice.h"
#include "userspace/model/coverage.h"
#include "userspace/model/names.h"
#include "userspace/model/reason.h"
#include "userspace/policy/judge.h"

namespace stockade::cmd {
namespace {

using policy::CaseKind;
using policy::Decision;

constexpr std::pair<sk_section, const char*> kSections[] = {
    {SK_SECTION_EXEC, "exec"}, {SK_SECTION_FILES, "files"}, {SK_SECTION_NETWORK, "network"}};

// A path that means the same to the policy as to whoever wrote it: absolute, and nothing in it that
// the kernel would have walked elsewhere. A backslash may be the event's own escape.
bool IsClean(absl::string_view path) {
    if (path.size() < 2 || path.front() != '/' || absl::StrContains(path, '\\')) return false;
    for (absl::string_view name : absl::StrSplit(path.substr(1), '/')) {
        if (name.empty() || name == "." || name == "..") return false;
    }
    return true;
}

class Adviser {
  public:
    Adviser(const policy::ResolvedPolicy& policy, bool own_root) : policy_(policy), own_root_(own_root) {}

    void Advise(v1::Refusal& refusal) {
        if (IsOfAbsentSection(refusal)) return;
        switch (model::NumberOf(model::Codes(), refusal.code())) {
            case SK_CODE_EXEC_DENIED:
                return Denied(CaseKind::kExec, refusal);
            case SK_CODE_READ_DENIED:
                return Denied(CaseKind::kRead, refusal);
            case SK_CODE_WRITE_DENIED:
                return Denied(CaseKind::kWrite, refusal);
            case SK_CODE_OTHER_LOCK:
                return OtherLock(refusal);
            default:
                return;
        }
    }

  private:
    // A dry run because nobody wrote the section, not because of `mode: observe`.
    bool IsOfAbsentSection(v1::Refusal& refusal) const {
        if (!refusal.dry_run()) return false;
        for (const auto& [section, name] : kSections) {
            if (refusal.section() != name || policy_.present[section]) continue;
            refusal.clear_suggestion();
            refusal.set_explanation(
                absl::StrCat("the policy has no ", name, " section: nothing there is enforced"));
            return true;
        }
        return false;
    }

    // Made when it is first asked for: most sandboxes are refused nothing. Null when the policy cannot
    // be compiled here; the kernel has it all the same.
    const policy::Judge* GetJudge() {
        if (asked_) return judge_ ? &*judge_ : nullptr;
        asked_ = true;
        StatusOr<Fd> root = own_root_ ? Fd() : Fd::Open("/", O_PATH | O_DIRECTORY);
        if (!root.ok()) return nullptr;
        root_ = *std::move(root);
        StatusOr<policy::Judge> judge = policy::Judge::Create(policy_, root_.get());
        if (judge.ok()) judge_ = *std::move(judge);
        return judge_ ? &*judge_ : nullptr;
    }

    std::optional<Decision> Ask(CaseKind kind, const std::string& path) {
        const policy::Judge* judge = GetJudge();
        if (judge == nullptr) return std::nullopt;
        policy::TestCase question;
        question.kind = kind;
        question.object = path;
        return judge->Decide(question);
    }

    static std::string DeniedBy(const Decision& decision) {
        return absl::StrCat("denied by ", decision.list, " '", decision.rule, "' (", ToString(decision.at),
                            ")");
    }

    void Denied(CaseKind kind, v1::Refusal& refusal) {
        if (!IsClean(refusal.object())) return;
        const std::optional<Decision> decision = Ask(kind, refusal.object());
        if (decision && !decision->allowed && absl::EndsWith(decision->list, ".deny"))
            refusal.set_explanation(DeniedBy(*decision));
    }

    void OtherLock(v1::Refusal& refusal) {
        const auto operation = model::FindOperation(refusal.operation());
        if (!operation) return;
        const absl::string_view id = refusal.operation();
        const absl::string_view section = InfoOf(*operation).section;
        if (section != "exec" && section != "files") return Grant(refusal);
        if (!IsClean(refusal.object())) {
            refusal.set_explanation(
                "as the caller wrote it: whether the policy allows it cannot be told from this path");
            return;
        }
        if (refusal.lock() == "mount") {
            refusal.set_explanation("the mount is read-only, whatever the policy says");
            return;
        }
        if (section == "exec") return Judge({CaseKind::kExec}, {"exec.allow"}, refusal);
        // What a refused open was for is not known: it has no file.
        if (absl::StartsWith(id, "open")) {
            return Judge({CaseKind::kRead, CaseKind::kWrite}, {"files.read", "files.write"}, refusal);
        }
        Judge({CaseKind::kWrite}, {"files.write"}, refusal);
    }

    void Grant(v1::Refusal& refusal) const {
        const int grant = model::GrantOfEscape(refusal.object());
        if (grant < 0) return;
        if ((policy_.grants >> grant & 1) == 0) {
            refusal.set_suggestion(model::GrantLine(grant));
        } else {
            refusal.set_explanation("the policy grants it; the sandbox has no capability for it");
        }
    }

    void Judge(const std::vector<CaseKind>& kinds, const std::vector<absl::string_view>& lists,
               v1::Refusal& refusal) {
        std::vector<std::string> lines;
        for (size_t i = 0; i < kinds.size(); ++i) {
            const std::optional<Decision> decision = Ask(kinds[i], refusal.object());
            if (!decision) return;
            if (decision->allowed) continue;
            if (absl::EndsWith(decision->list, ".deny")) {
                refusal.set_explanation(DeniedBy(*decision));
                return;
            }
            lines.push_back(model::PathLineOf(lists[i], refusal.object()));
        }
        if (!lines.empty()) {
            // The read is named first: `write` may read back, so it alone is not the smaller line.
            refusal.set_suggestion(absl::StrJoin(lines, ", or to write it "));
            return;
        }
        refusal.set_lock("dac");
        refusal.set_explanation("the policy allows it; file permissions refused");
    }

    const policy::ResolvedPolicy& policy_;
    const bool own_root_;
    bool asked_ = false;
    Fd root_;
    std::optional<policy::Judge> judge_;
};

}  // namespace

void AdviseRefusals(const policy::ResolvedPolicy& policy, bool own_root, v1::Summary* summary) {
    if (policy.name.empty()) return;  // of a sandbox that an earlier agent started
    Adviser adviser(policy, own_root);
    for (v1::Refusal& refusal : *summary->mutable_refusals()) adviser.Advise(refusal);
    AdviseNetwork(policy, summary);
}

std::string AbsentSectionsNote(const policy::ResolvedPolicy& policy) {
    std::vector<std::string> absent;
    for (const auto& [section, name] : kSections) {
        if (!policy.present[section]) absent.emplace_back(name);
    }
    if (absent.empty()) return "";
    return absl::StrCat("policy ", policy.name, " has no section ", absl::StrJoin(absent, ", "),
                        ": everything there is allowed and only recorded");
}

}  // namespace stockade::cmd
