#include "userspace/k8s/doctor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/k8s/checks.h"

namespace stockade::k8s {

absl::string_view SeverityName(Severity severity) {
    switch (severity) {
        case Severity::kUnenforceable: return "unenforceable";
        case Severity::kWeaker: return "weaker";
        case Severity::kUnknown: return "unknown";
    }
    return "?";
}

bool Diagnosis::Enforceable() const {
    return std::none_of(findings.begin(), findings.end(),
                        [](const Finding& finding) { return finding.severity == Severity::kUnenforceable; });
}

Diagnosis Diagnose(const ObjectSet& set, int64_t now_s) {
    Diagnosis diagnosis;
    diagnosis.objects = set.size();
    CheckAgent(set, &diagnosis.findings);
    CheckNodes(set, &diagnosis.findings);
    CheckAdmission(set, &diagnosis.findings);
    CheckNamespaces(set, now_s, &diagnosis.findings);
    diagnosis.sandbox_pods = CheckPods(set, &diagnosis.findings);
    std::stable_sort(diagnosis.findings.begin(), diagnosis.findings.end(),
                     [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
    return diagnosis;
}

}  // namespace stockade::k8s
