// Symbolic links of a sandbox's root, followed inside it when a policy is bound.
//
// The kernel judges the path of the object that was reached, so a rule for /bin/sh says nothing
// about /usr/bin/dash unless the link is followed here.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::policy {

struct FollowedPath {
    std::string path;      // without links, absolute inside the root; equal to the input if none
    bool foreign = false;  // a link on the way belongs to neither root nor us
};

// Follows every link in `path` (absolute) as chroot(root_fd) would. What does not exist is kept
// as it is: policies speak of files that come later. Never leaves the root; magic links of
// /proc are not followed. kFailedPrecondition on a loop (40 links).
StatusOr<FollowedPath> FollowLinks(int root_fd, absl::string_view path);

}  // namespace stockade::policy
