#include "userspace/cmd/landlock_rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/launch/landlock.h"

namespace stockade::cmd {
namespace {

uint32_t Rights(uint32_t ops) {
    uint32_t rights = 0;
    if (ops & SK_OP_READ) rights |= launch::kLandlockRead;
    if (ops & SK_OP_WRITE) rights |= launch::kLandlockWrite;
    // Landlock asks for read as well when a program is executed, and for execute at its loader.
    if (ops & (SK_OP_EXEC | SK_OP_MAP)) rights |= launch::kLandlockExecute | launch::kLandlockRead;
    return rights;
}

uint32_t Handled(const policy::ResolvedPolicy& policy, kernel::Backend backend, bool bpf_first) {
    if (policy.mode == SK_MODE_OBSERVE) return 0;
    const auto only_denies = [&](int section) { return policy.violation[section] == SK_VERDICT_DENY; };
    const bool lsm = backend == kernel::Backend::kLsm;
    uint32_t handled = 0;
    if (policy.present[SK_SECTION_FILES] && (!lsm || bpf_first || only_denies(SK_SECTION_FILES))) {
        handled |= launch::kLandlockRead | launch::kLandlockWrite;
    }
    if (policy.present[SK_SECTION_EXEC] && ((lsm && bpf_first) || only_denies(SK_SECTION_EXEC))) {
        handled |= launch::kLandlockExecute;
    }
    return handled;
}

}  // namespace

LandlockChoice LandlockFor(const policy::ResolvedPolicy& policy, const policy::CompiledPolicy& compiled,
                           kernel::Backend backend, bool bpf_before_landlock) {
    LandlockChoice out;
    const uint32_t handled = Handled(policy, backend, bpf_before_landlock);
    if (handled == 0) return out;
    std::vector<launch::LandlockPattern> patterns;
    for (const policy::LandlockRule& rule : compiled.landlock) {
        const uint32_t rights = Rights(rule.ops) & handled;
        if (rule.deny || rights == 0) continue;
        // The compiler's prefix is a whole directory; without the slash it would be taken for the
        // beginning of a name, and the hull would be the directory above.
        std::string prefix = rule.literal_prefix;
        if (!rule.is_exact && (prefix.empty() || prefix.back() != '/')) prefix.push_back('/');
        patterns.push_back({.rights = rights, .prefix = std::move(prefix), .exact = rule.is_exact});
    }
    const launch::LandlockPlan plan = launch::PlanLandlock(handled, patterns);
    if (plan.paths.size() > launch::kMaxLandlockPaths) {
        out.left_out = absl::StrCat("no Landlock: policy ", policy.name, " needs ", plan.paths.size(),
                                    " paths, more than ", launch::kMaxLandlockPaths,
                                    "; the attested coverage is without it");
        return out;
    }
    out.domain.set_handled(plan.handled);
    for (const launch::LandlockPath& path : plan.paths) {
        api::LandlockPath* row = out.domain.add_paths();
        row->set_path(path.path);
        row->set_rights(path.rights);
    }
    return out;
}

bool HasFileDomain(const api::Landlock& domain) {
    constexpr uint32_t kFiles = launch::kLandlockRead | launch::kLandlockWrite;
    return (domain.handled() & kFiles) == kFiles;
}

bool HidesDirectories(const api::Landlock& domain) {
    for (const api::LandlockPath& row : domain.paths()) {
        if (row.path() == "/" && (row.rights() & (launch::kLandlockRead | launch::kLandlockReadThis)) != 0) return false;
    }
    return HasFileDomain(domain);
}

bool BpfBeforeLandlock() {
    const StatusOr<std::string> lsms = ReadFile("/sys/kernel/security/lsm", 4096);
    if (!lsms.ok()) return false;
    const size_t bpf = lsms->find("bpf");
    const size_t landlock = lsms->find("landlock");
    return bpf != std::string::npos && (landlock == std::string::npos || bpf < landlock);
}

}  // namespace stockade::cmd
