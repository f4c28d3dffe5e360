#include "userspace/launch/bind_check.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <climits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/errno.h"

namespace stockade::launch {
namespace {

// Refused with all below: the kernel's views, the host's settings and keys.
constexpr const char* kTrees[] = {"/proc", "/sys", "/dev", "/etc", "/boot"};
// Sockets and state of what starts containers: a way to root on the host.
constexpr const char* kRuntimes[] = {
    "/run/docker.sock",      "/run/docker",          "/run/containerd",   "/run/crio",
    "/run/podman",           "/run/stockade",        "/run/systemd",      "/run/dbus",
    "/run/buildkit",         "/run/libvirt",         "/run/k3s",          "/run/runc",
    "/run/cri-dockerd.sock", "/run/dockershim.sock", "/run/snapd.socket", "/var/lib/docker",
    "/var/lib/containerd",   "/var/lib/containers",  "/var/lib/kubelet",  "/var/lib/stockade",
    "/var/lib/rancher",
};
// The same views wherever else they are mounted: bpf (pinned maps and links), cgroup v1 and v2, proc,
// sysfs, debugfs, tracefs, securityfs, configfs, efivarfs, devpts.
constexpr uint32_t kKernelMagics[] = {BPF_FS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, PROC_SUPER_MAGIC,
                                      SYSFS_MAGIC,  DEBUGFS_MAGIC,      TRACEFS_MAGIC,       SECURITYFS_MAGIC,
                                      0x62656570,   EFIVARFS_MAGIC,     DEVPTS_SUPER_MAGIC};
// Sockets of rootless runtimes, below /run/user/UID.
constexpr const char* kUserRuntimes[] = {"docker.sock", "podman", "containerd-rootless", "bus", "systemd"};

bool Below(const std::string& path, const std::string& tree) {
    return path == tree || (absl::StartsWith(path, tree) && path[tree.size()] == '/');
}

Status Refuse(const std::string& path, absl::string_view why) {
    return absl::PermissionDeniedError(absl::StrCat(path, " may not be shown in a sandbox: ", why));
}

struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const Identity& other) const { return device == other.device && inode == other.inode; }
};

bool Identify(const std::string& path, Identity* identity) {
    struct stat st;
    if (stat(path.c_str(), &st) != 0) return false;
    *identity = {st.st_dev, st.st_ino};
    return true;
}

// The name without links, or the name itself where nothing is.
std::string Real(const std::string& path) {
    char buffer[PATH_MAX];
    return realpath(path.c_str(), buffer) != nullptr ? buffer : path;
}

std::vector<std::string> Homes() {
    std::vector<std::string> homes{"/root", "/home"};
    auto text = ReadFile("/etc/passwd", 4u << 20);
    if (!text.ok()) return homes;
    for (absl::string_view line : absl::StrSplit(*text, '\n')) {
        std::vector<absl::string_view> fields = absl::StrSplit(line, ':');
        unsigned uid = 0;
        // System users "live" in /usr/sbin, /var/lib/x and the like; those are no homes.
        if (fields.size() < 7 || !absl::SimpleAtoi(fields[2], &uid) || uid < 1000 || uid == 65534) continue;
        if (fields[5].size() > 1 && fields[5][0] == '/') homes.emplace_back(fields[5]);
    }
    return homes;
}

Status CheckHome(const std::string& path, const Identity& identity) {
    for (const std::string& home : Homes()) {
        Identity other;
        if (path == home || (Identify(home, &other) && other == identity)) {
            return Refuse(path, "it is a home directory; show a directory below it");
        }
        if (Below(home, path)) return Refuse(path, absl::StrCat("it holds the home directory ", home));
    }
    // Homes of directory services are in no file.
    if (absl::StartsWith(path, "/home/") && path.find('/', 6) == std::string::npos) {
        return Refuse(path, "it is a home directory; show a directory below it");
    }
    return absl::OkStatus();
}

Status CheckRuntimes(const std::string& path, const Identity& identity, std::vector<std::string> names) {
    for (const char* name : kRuntimes) names.emplace_back(name);
    for (const std::string& name : names) {
        std::string runtime = Real(name);
        Identity other;
        if (Below(path, runtime) || Below(path, name))
            return Refuse(path, "it belongs to a container runtime");
        if (!Identify(runtime, &other)) continue;
        if (other == identity) return Refuse(path, absl::StrCat("it is another name of ", name));
        if (Below(runtime, path)) return Refuse(path, absl::StrCat("it holds ", name));
    }
    if (path == "/run" || path == "/var/run" || path == "/var" || path == "/run/user") {
        return Refuse(path, "it holds sockets of the host's services");
    }
    if (absl::StartsWith(path, "/run/user/")) {
        std::vector<std::string> parts = absl::StrSplit(path.substr(10), '/');
        if (parts.size() == 1) return Refuse(path, "it holds sockets of a user's services");
        for (const char* name : kUserRuntimes) {
            if (parts[1] == name) return Refuse(path, "it belongs to a user's services");
        }
    }
    return absl::OkStatus();
}

}  // namespace

Status CheckBindSource(int fd, const DenyPredicate& denied, const std::vector<std::string>& own) {
    char buffer[PATH_MAX];
    ssize_t n = readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), buffer, sizeof(buffer));
    if (n <= 0 || n == sizeof(buffer)) return absl::PermissionDeniedError("the source of a bind has no path");
    const std::string path(buffer, static_cast<size_t>(n));
    struct stat st;
    if (fstat(fd, &st) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
    if (path[0] != '/' || st.st_nlink == 0) return Refuse(path, "it has no place in the file system");
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode) && !S_ISSOCK(st.st_mode)) {
        return Refuse(path, "it is neither directory, file nor socket");
    }
    const Identity identity{st.st_dev, st.st_ino};
    Identity root;
    if (path == "/" || (Identify("/", &root) && root == identity))
        return Refuse(path, "it is the host's root");
    for (const char* tree : kTrees) {
        Identity other;
        if (Below(path, tree) || (Identify(tree, &other) && other == identity)) {
            return Refuse(path, absl::StrCat("it is part of ", tree));
        }
    }
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0) return ErrnoStatus(errno, absl::StrCat("statfs ", path));
    for (const uint32_t magic : kKernelMagics) {
        if (static_cast<uint32_t>(fs.f_type) == magic) {
            return Refuse(path, "it lies on a file system of the kernel's");
        }
    }
    SK_RETURN_IF_ERROR(CheckHome(path, identity));
    SK_RETURN_IF_ERROR(CheckRuntimes(path, identity, own));
    if (denied && denied(path)) return Refuse(path, "the policy denies it");
    return absl::OkStatus();
}

StatusOr<Fd> OpenBindSource(const std::string& path, const DenyPredicate& denied,
                            const std::vector<std::string>& own) {
    SK_ASSIGN_OR_RETURN(Fd fd, Fd::Open(path, O_PATH));
    SK_RETURN_IF_ERROR(CheckBindSource(fd.get(), denied, own));
    return fd;
}

}  // namespace stockade::launch
