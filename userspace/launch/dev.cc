// A minimal /dev, and the sandbox's own terminal.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/launch/mounts.h"
#include "userspace/launch/root.h"

namespace stockade::launch {
namespace {

constexpr uint64_t kDevBytes = 64u << 10;
constexpr uint64_t kDevInodes = 64;
constexpr uint64_t kShmBytes = 64ull << 20;  // Docker's size
constexpr uint64_t kShmInodes = 4096;

struct Node {
    const char* name;
    unsigned major, minor;
};
constexpr Node kNodes[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                           {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};
struct Link {
    const char* name;
    const char* target;
};
constexpr Link kLinks[] = {{"ptmx", "pts/ptmx"},
                           {"fd", "/proc/self/fd"},
                           {"stdin", "/proc/self/fd/0"},
                           {"stdout", "/proc/self/fd/1"},
                           {"stderr", "/proc/self/fd/2"}};

Status FillDev(int dev) {
    for (const Node& node : kNodes) {
        if (mknodat(dev, node.name, S_IFCHR | 0666, makedev(node.major, node.minor)) != 0 ||
            fchmodat(dev, node.name, 0666, 0) != 0) {
            return ErrnoStatus(errno, absl::StrCat("make /dev/", node.name));
        }
    }
    for (const Link& link : kLinks) {
        if (symlinkat(link.target, dev, link.name) != 0) {
            return ErrnoStatus(errno, absl::StrCat("link /dev/", link.name));
        }
    }
    SK_RETURN_IF_ERROR(MakeDirs(dev, "pts"));
    return MakeDirs(dev, "shm");
}

}  // namespace

Status OpenPty(const NativeSpec& spec, RootTree& tree) {
    tree.master = Fd(openat(MountAt(tree, "dev/pts"), "ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!tree.master.ok()) return ErrnoStatus(errno, "open a pty");
    int unlock = 0;
    if (ioctl(tree.master.get(), TIOCSPTLCK, &unlock) != 0) return ErrnoStatus(errno, "unlock the pty");
    tree.terminal = Fd(ioctl(tree.master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!tree.terminal.ok()) return ErrnoStatus(errno, "open the pty's other end");
    if (fchown(tree.terminal.get(), spec.uid, spec.gid) != 0) return ErrnoStatus(errno, "own the pty");
    if (spec.tty_rows != 0 && spec.tty_columns != 0) {
        winsize size{spec.tty_rows, spec.tty_columns, 0, 0};
        if (ioctl(tree.master.get(), TIOCSWINSZ, &size) != 0) return ErrnoStatus(errno, "size the pty");
    }
    return absl::OkStatus();
}

Status AddDev(RootTree& tree) {
    SK_ASSIGN_OR_RETURN(Fd dev, NewTmpfs(kDevBytes, kDevInodes, "0755", 0, 0, kMountNosuid | kMountNoexec));
    SK_RETURN_IF_ERROR(FillDev(dev.get()));
    SK_RETURN_IF_ERROR(SetMountAttributes(dev, false, kMountRdonly));
    SK_RETURN_IF_ERROR(MakeDirs(tree.root.get(), "dev"));
    SK_ASSIGN_OR_RETURN(
        Fd pts, NewMount("devpts", {{"ptmxmode", "0666"}, {"mode", "0600"}}, kMountNosuid | kMountNoexec));
    SK_ASSIGN_OR_RETURN(
        Fd shm, NewTmpfs(kShmBytes, kShmInodes, "1777", 0, 0, kMountNosuid | kMountNodev | kMountNoexec));
    tree.mounts.push_back({std::move(dev), "dev"});
    tree.mounts.push_back({std::move(pts), "dev/pts"});
    tree.mounts.push_back({std::move(shm), "dev/shm"});
    return absl::OkStatus();
}

}  // namespace stockade::launch
