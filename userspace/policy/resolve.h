// `extends` folded in.
//
//   PolicyLibrary library;
//   library.Add(std::move(parsed.policies), diagnostics);
//   SK_ASSIGN_OR_RETURN(ResolvedPolicy policy, library.Resolve("python-tool"));
//
// Folding: lists are joined; a single value of the policy itself wins over one of its bases, a
// later base over an earlier. For `violation`, a value for the whole policy counts as one for
// each section that the same document does not set. Labels and tests are never inherited.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/policy/document.h"

namespace stockade::policy {

// A chain of policies that build on one another; real ones have two or three.
inline constexpr size_t kMaxExtends = 32;

class PolicyLibrary {
  public:
    PolicyLibrary();  // with the built-in policies

    // A built-in name is taken only with the built-in's own meaning; a name that is there
    // already is an error.
    void Add(std::vector<SandboxPolicy> policies, std::vector<Diagnostic>& diagnostics);

    // From here on the name does not resolve, and nothing that extends it does: what its file says
    // was not wholly understood, and what was would be less than what its author meant.
    void Refuse(const std::string& name, std::vector<Diagnostic> why);
    // Null when the name is not refused.
    const std::vector<Diagnostic>* Refusal(const std::string& name) const;

    bool Has(const std::string& name) const { return policies_.count(name) != 0; }
    const SandboxPolicy* Find(const std::string& name) const;
    std::vector<std::string> Names() const;  // built-in ones included

    // kNotFound for the name itself; kInvalidArgument for what it extends (unknown, cycle)
    // and for one that is refused.
    StatusOr<ResolvedPolicy> Resolve(const std::string& name) const;
    // As above, with the position of each error.
    std::optional<ResolvedPolicy> Resolve(const std::string& name,
                                          std::vector<Diagnostic>& diagnostics) const;

  private:
    std::map<std::string, SandboxPolicy> policies_;
    std::map<std::string, std::vector<Diagnostic>> refused_;
};

}  // namespace stockade::policy
