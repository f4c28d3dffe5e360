// Symbolic links of a sandbox's root, followed inside it when a policy is bound.
//
// The kernel judges the path of the object that was reached, so a rule for /bin/sh says nothing
// about /usr/bin/dash unless the link is followed here.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::policy {

struct FollowedPath {
    std::string path;      // without links, absolute inside the root; equal to the input if none
    bool foreign = false;  // a link on the way belongs to neither root nor us
};

// Looks at each name of the root once: the root must not change while it lives.
class RootLinks {
  public:
    explicit RootLinks(int root_fd) : root_fd_(root_fd) {}  // borrowed

    // Follows every link in `path` (absolute) as chroot(root_fd) would. What does not exist is kept
    // as it is: policies speak of files that come later. Never leaves the root; magic links of
    // /proc are not followed. kFailedPrecondition on a loop (40 links).
    StatusOr<FollowedPath> Follow(absl::string_view path);

  private:
    enum class Kind { kMissing, kPlain, kLink };
    struct Place {
        Kind kind = Kind::kMissing;
        std::string target{};  // of a link
        bool foreign = false;  // of a link
    };
    StatusOr<const Place*> Look(const std::string& path);

    const int root_fd_;
    absl::flat_hash_map<std::string, Place> seen_;
};

}  // namespace stockade::policy
