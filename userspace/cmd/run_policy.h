// Which policy a run gets: the one it brings, one by name, by selector, or the default.
//
// Directories are looked at again when a file in them changed. A policy from a file with errors is
// refused, and so is what extends it: a section that was not understood would be a section that is
// absent, which is only observed. Other files are not affected. One thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "userspace/api/frame.h"
#include "userspace/base/status.h"
#include "userspace/model/sandbox.h"
#include "userspace/policy/resolve.h"

namespace stockade::cmd {

struct ChosenPolicy {
    policy::ResolvedPolicy policy;
    std::string note;  // what the caller should know: "no policy given: ..."
};

class PolicyStore {
  public:
    PolicyStore(std::vector<std::string> directories, std::string default_policy)
        : directories_(std::move(directories)), default_policy_(std::move(default_policy)) {}

    // kNotFound for an unknown name, kInvalidArgument with all errors of the documents that were
    // asked for, kFailedPrecondition when several selectors match, or when none does and a file
    // with errors may have held the one that would.
    StatusOr<ChosenPolicy> Choose(const api::PolicySource& source, const model::Labels& labels);

    // The one policy whose selector fits; nothing where none does. There is no default here. kAlreadyExists when several fit,
    // kFailedPrecondition when none does and a file with errors may have held it.
    StatusOr<std::optional<policy::ResolvedPolicy>> Select(const model::Labels& labels);

    // A policy that a namespace of the cluster has for itself (metadata.namespace): of that name, or, where it is empty, the one whose
    // selector fits. Nothing where there is none; else as above. No other call knows these.
    StatusOr<std::optional<policy::ResolvedPolicy>> OfNamespace(const std::string& name_space, const std::string& name,
                                                                const model::Labels& labels);

  private:
    Status Refresh();
    StatusOr<std::string> SelectedName(const std::string& name_space, const model::Labels& labels) const;
    std::vector<std::string> NodeNames() const;
    StatusOr<policy::ResolvedPolicy> FromText(const api::PolicySource& source) const;
    StatusOr<policy::ResolvedPolicy> FromKnownText(const api::PolicySource& source);
    StatusOr<ChosenPolicy> BySelector(const model::Labels& labels) const;

    const std::vector<std::string> directories_;
    const std::string default_policy_;
    std::string signature_;  // names, sizes and times of all files
    policy::PolicyLibrary library_;
    std::map<std::string, policy::ResolvedPolicy> known_texts_;  // by what was asked for; good until library_ changes
    // Errors of the files; told when what was looked for may be in them. By namespace: of a file that holds that namespace's alone, so
    // that who writes it breaks no other's. "" = all else.
    std::map<std::string, std::string> broken_;
};

}  // namespace stockade::cmd
