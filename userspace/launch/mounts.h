// The new mount interface: file systems and binds as descriptors that are attached nowhere yet.
// Nothing of a sandbox is ever visible in the host's mount table, and a launcher that is killed
// leaves no mount behind: they die with their descriptors.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::launch {

// Attributes of mount_setattr(2), MOUNT_ATTR_*.
inline constexpr uint64_t kMountRdonly = 0x1;
inline constexpr uint64_t kMountNosuid = 0x2;
inline constexpr uint64_t kMountNodev = 0x4;
inline constexpr uint64_t kMountNoexec = 0x8;

using MountOptions = std::vector<std::pair<std::string, std::string>>;  // an empty value = a flag

// A new file system instance of `type`, not attached. The descriptor works as a directory.
StatusOr<Fd> NewMount(const char* type, const MountOptions& options, uint64_t attributes);
StatusOr<Fd> NewTmpfs(uint64_t max_bytes, uint64_t max_inodes, const std::string& mode, uid_t uid, gid_t gid,
                      uint64_t attributes);

// A bind of what `source` refers to, not attached, with `attributes` on all of it.
StatusOr<Fd> CloneMount(int source, bool recursive, uint64_t attributes);
// The same, with the owner (from_uid, from_gid) of files shown as (to_uid, to_gid).
// kUnimplemented where the file system cannot be idmapped.
StatusOr<Fd> CloneIdmapped(int source, uid_t from_uid, gid_t from_gid, uid_t to_uid, gid_t to_gid,
                           uint64_t attributes);
Status SetMountAttributes(const Fd& mount, bool recursive, uint64_t attributes);

}  // namespace stockade::launch
