// Which policy a run gets: the one it brings, one by name, by selector, or the default.
//
// Directories are looked at again when a file in them changed. One thread.
#pragma once

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

    // kNotFound for an unknown name, kInvalidArgument with all errors of the documents,
    // kFailedPrecondition when several selectors match.
    StatusOr<ChosenPolicy> Choose(const api::PolicySource& source, const model::Labels& labels);

  private:
    Status Refresh();
    StatusOr<policy::ResolvedPolicy> FromText(const api::PolicySource& source) const;
    StatusOr<ChosenPolicy> BySelector(const model::Labels& labels) const;

    const std::vector<std::string> directories_;
    const std::string default_policy_;
    std::string signature_;  // names, sizes and times of all files
    policy::PolicyLibrary library_;
    std::string broken_;  // errors of the files; asked for when a name is not found
};

}  // namespace stockade::cmd
