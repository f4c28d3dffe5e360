// The file system on which maps and links outlive the agent.
#pragma once

#include <string>

#include "userspace/base/status.h"

namespace stockade::kernel {

// Where distributions mount it, and where the default pin_dir is.
constexpr char kUsualBpffs[] = "/sys/fs/bpf";

// Is `pin_dir`, or what is there of it, on a bpffs? Below `usual`, and where nothing is mounted there, as on hosts without systemd, one
// is mounted first. Only among the host's own mounts (`host`): another namespace's would go with its last process, and so would the
// verdicts. kFailedPrecondition says what to do.
Status EnsureBpffs(const std::string& pin_dir, const std::string& usual, bool host);

// Whether this process sees the mounts of the host's first one (or of its container's).
bool InHostMounts();

}  // namespace stockade::kernel
