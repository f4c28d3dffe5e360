// The file system of a sandbox, built as detached mounts before its first task exists.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"
#include "userspace/launch/native.h"

namespace stockade::launch {

struct RootMount {
    Fd mount;
    std::string target;  // relative to the root
};

struct RootTree {
    Fd root;
    std::vector<RootMount> mounts;  // in the order of attaching
    Fd out;                         // second descriptor of /out; not ok() without
    Fd master, terminal;            // of the pty; not ok() without `tty`
    InKind in_kind = InKind::kNone;
};

// `resolver`: the name server of /etc/resolv.conf, may be empty.
StatusOr<RootTree> BuildRoot(const NativeSpec& spec, const std::string& resolver);

// The parts. dev.cc: /dev with its pts and shm, and the pty pair when asked for.
Status AddDev(const NativeSpec& spec, RootTree& tree);
// etc.cc: the generated files, and what is shown of the host's.
Status AddEtc(const NativeSpec& spec, const std::string& resolver, RootTree& tree);

// Directory of mode 0755 below the descriptor, made with its parents; existing ones are kept. Links
// among them are followed as if the descriptor were the root.
Status MakeDirs(int base, const std::string& path);
Status WriteFileAt(int base, const std::string& name, const std::string& text);
// A bind of a host path, read-only; absent sources are skipped. Makes the mount point.
Status AddHostBind(RootTree& tree, const std::string& host_path, const std::string& target);

}  // namespace stockade::launch
