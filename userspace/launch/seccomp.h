// Seccomp filters of a sandbox: a profile (allowlist) and a floor below it that no profile lifts.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::launch {

// Two stacked filters; the kernel takes the stricter answer of the two.
struct SeccompProgram {
    std::vector<sock_filter> profile;
    std::vector<sock_filter> floor;
    bool empty() const { return profile.empty() || floor.empty(); }
};

// `grants`: bits of bpf/wire/policy.h (1 << SK_GRANT_*), each lifts its entries of the floor.
// `oci_json`: a profile in the format of the OCI runtime specification (linux.seccomp) in place
// of the default one; empty = the default. kInvalidArgument says what is wrong in it.
// `writable_binds`: the sandbox gets a directory of the host to write to, where it must not leave
// set-id programs. kInvalidArgument together with the grant of io_uring, whose opens no filter sees.
// About a millisecond: compile once for each set of arguments and hand the result on.
StatusOr<SeccompProgram> CompileSeccomp(uint64_t grants, const std::string& oci_json = "",
                                        bool writable_binds = false);

inline constexpr size_t kMaxOciProfileBytes = 1u << 20;  // Docker's own is 15 KiB

// The parts, for tests.
StatusOr<std::vector<sock_filter>> DefaultProfile();
StatusOr<std::vector<sock_filter>> OciProfile(const std::string& json);
std::vector<sock_filter> SeccompFloor(uint64_t grants, bool writable_binds = false);

}  // namespace stockade::launch
