// The file system of a sandbox, built as detached mounts: first what is the same for every command, which its first
// task attaches while the rest, what one caller asked for, is made.
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
    size_t base_mounts = 0;         // as many of them are BuildBase's
    Fd out;                         // second descriptor of /out; not ok() without
    Fd master, terminal;            // of the pty; not ok() without `tty`
    InKind in_kind = InKind::kNone;
};

// What is shown of the host's /etc. Of /etc/ssl the certificates only: beside them lie private keys.
inline constexpr const char* kHostEtc[] = {"etc/ld.so.cache", "etc/ld.so.conf",      "etc/ld.so.conf.d",
                                           "etc/ssl/certs",   "etc/ssl/openssl.cnf", "etc/alternatives",
                                           "etc/localtime"};

// Of `spec` only what has to do with no command: rootfs, tmp_max_bytes, out_max_bytes. `resolver`: the name server of
// /etc/resolv.conf, may be empty. The root stays writable until the first task has attached all.
StatusOr<RootTree> BuildBase(const NativeSpec& spec, const std::string& resolver);
// The rest: ids, terminal, /in and binds. The base may be attached by now or not.
Status AddOrder(const NativeSpec& spec, RootTree& tree);

// The parts. dev.cc: /dev with its pts and shm; the pty pair.
Status AddDev(RootTree& tree);
Status OpenPty(const NativeSpec& spec, RootTree& tree);
// etc.cc: the generated files, and what is shown of the host's; who the sandbox is.
Status AddEtc(const std::string& resolver, RootTree& tree);
Status AddUser(const NativeSpec& spec, RootTree& tree);

// Directory of mode 0755 below the descriptor, made with its parents; existing ones are kept. Links
// among them are followed as if the descriptor were the root.
Status MakeDirs(int base, const std::string& path);
Status WriteFileAt(int base, const std::string& name, const std::string& text);
// The mount at `target`; -1 when there is none.
int MountAt(const RootTree& tree, const std::string& target);
// A bind of a host path, read-only; absent sources are skipped. Makes the mount point.
Status AddHostBind(RootTree& tree, const std::string& host_path, const std::string& target);

}  // namespace stockade::launch
