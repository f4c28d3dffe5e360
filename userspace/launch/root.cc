#include "userspace/launch/root.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/errno.h"
#include "userspace/launch/in_copy.h"
#include "userspace/launch/mounts.h"
#include "userspace/launch/syscalls.h"

namespace stockade::launch {
namespace {

constexpr uint64_t kShown = kMountRdonly | kMountNosuid | kMountNodev;
// The root itself holds mount points, links and /etc only.
constexpr uint64_t kRootBytes = 1u << 20;
constexpr uint64_t kRootInodes = 512;
// Inodes cost kernel memory too: 64 bytes of content each would fit a million in 64 MiB.
constexpr uint64_t kScratchInodes = 65536;
constexpr int kMaxRootEntries = 256;  // top level of --rootfs; a distribution has about 20

// Everything a program of the distribution is made of, and nothing of users or services.
constexpr const char* kHostDirs[] = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"};
// Never shown of a --rootfs, for they are made here.
constexpr const char* kOwnDirs[] = {"proc", "sys", "dev", "tmp", "in", "out", "run"};

// Paths below a new root are the caller's or an image's, and so may be links in it: they are
// followed as they will be inside, never from the launcher's own root.
constexpr uint64_t kInside = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;

// Shows one top-level entry of `base` (a descriptor of the host's "/" or of --rootfs).
Status AddEntry(RootTree& tree, int base, const std::string& name) {
    Fd source(openat(base, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!source.ok()) {
        return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, absl::StrCat("open /", name));
    }
    struct stat st;
    if (fstat(source.get(), &st) != 0) return ErrnoStatus(errno, absl::StrCat("stat /", name));
    if (S_ISLNK(st.st_mode)) {
        char target[256];
        ssize_t n = readlinkat(source.get(), "", target, sizeof(target) - 1);
        if (n < 0) return ErrnoStatus(errno, absl::StrCat("read link /", name));
        target[n] = '\0';
        if (symlinkat(target, tree.root.get(), name.c_str()) != 0) {
            return ErrnoStatus(errno, absl::StrCat("link /", name));
        }
        return absl::OkStatus();
    }
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) return absl::OkStatus();
    SK_ASSIGN_OR_RETURN(Fd mount, CloneMount(source.get(), true, kShown));
    SK_RETURN_IF_ERROR(S_ISDIR(st.st_mode) ? MakeDirs(tree.root.get(), name)
                                           : WriteFileAt(tree.root.get(), name, ""));
    tree.mounts.push_back({std::move(mount), name});
    return absl::OkStatus();
}

Status AddRootfs(RootTree& tree, const Fd& rootfs) {
    SK_ASSIGN_OR_RETURN(Fd listing, Fd::OpenAt(rootfs, ".", O_RDONLY | O_DIRECTORY));
    DIR* dir = fdopendir(listing.Release());
    if (dir == nullptr) return ErrnoStatus(errno, "list the root file system");
    Status status;
    int count = 0;
    while (dirent* entry = readdir(dir)) {
        std::string name = entry->d_name;
        bool own = name == "." || name == "..";
        for (const char* known : kOwnDirs) own = own || name == known;
        if (own) continue;
        if (++count > kMaxRootEntries) {
            status = absl::InvalidArgumentError("the root file system has over 256 top-level entries");
            break;
        }
        status = AddEntry(tree, rootfs.get(), name);
        if (!status.ok()) break;
    }
    closedir(dir);
    return status;
}

Status AddSystem(const NativeSpec& spec, const std::string& resolver, RootTree& tree) {
    if (spec.rootfs.ok()) return AddRootfs(tree, spec.rootfs);
    SK_ASSIGN_OR_RETURN(Fd slash, Fd::Open("/", O_PATH | O_DIRECTORY));
    for (const char* name : kHostDirs) SK_RETURN_IF_ERROR(AddEntry(tree, slash.get(), name));
    return AddEtc(resolver, tree);
}

Status AddScratch(const NativeSpec& spec, RootTree& tree) {
    SK_ASSIGN_OR_RETURN(
        Fd tmp, NewTmpfs(spec.tmp_max_bytes, kScratchInodes, "1777", 0, 0, kMountNosuid | kMountNodev));
    SK_RETURN_IF_ERROR(MakeDirs(tree.root.get(), "tmp"));
    tree.mounts.push_back({std::move(tmp), "tmp"});
    if (spec.out_max_bytes == 0) return absl::OkStatus();
    // Root's until AddOrder knows whose it is.
    SK_ASSIGN_OR_RETURN(
        Fd out, NewTmpfs(spec.out_max_bytes, kScratchInodes, "0700", 0, 0, kMountNosuid | kMountNodev));
    SK_ASSIGN_OR_RETURN(tree.out, Fd::Dup(out.get()));
    SK_RETURN_IF_ERROR(MakeDirs(tree.root.get(), "out"));
    tree.mounts.push_back({std::move(out), "out"});
    return absl::OkStatus();
}

Status AddIn(const NativeSpec& spec, RootTree& tree) {
    if (!spec.in.ok()) return absl::OkStatus();
    SK_RETURN_IF_ERROR(MakeDirs(tree.root.get(), "in"));
    StatusOr<Fd> mount = absl::UnimplementedError("a list of files is copied");
    if (!spec.in_listed)
        mount = CloneIdmapped(spec.in.get(), spec.caller_uid, spec.caller_gid, spec.uid, spec.gid, kShown);
    tree.in_kind = InKind::kIdmapped;
    if (!mount.ok() && absl::IsUnimplemented(mount.status())) {
        SK_ASSIGN_OR_RETURN(Fd copy, NewTmpfs(spec.in_copy_max_bytes, kScratchInodes, "0700", spec.uid,
                                              spec.gid, kMountNosuid | kMountNodev));
        SK_RETURN_IF_ERROR(CopyIn(spec.in.get(), copy.get(), spec));
        SK_RETURN_IF_ERROR(SetMountAttributes(copy, false, kMountRdonly));
        tree.in_kind = InKind::kCopied;
        mount = std::move(copy);
    }
    if (!mount.ok()) return Annotate(mount.status(), "/in");
    tree.mounts.push_back({*std::move(mount), "in"});
    return absl::OkStatus();
}

// The directory in which the mount point is to be made: a scratch mount or the root. `rest`
// becomes the path below it.
int MountPointBase(const RootTree& tree, std::string* rest) {
    if (!absl::StartsWith(*rest, "tmp/")) return tree.root.get();
    *rest = rest->substr(4);
    return MountAt(tree, "tmp");
}

// Below a directory of the host the point must exist, which attaching finds out; elsewhere it is made.
Status MakeMountPoint(int base, const std::string& path, bool directory) {
    if (directory) return MakeDirs(base, path);
    size_t slash = path.rfind('/');
    if (slash != std::string::npos) SK_RETURN_IF_ERROR(MakeDirs(base, path.substr(0, slash)));
    return WriteFileAt(base, path, "");
}

Status CheckTarget(const std::string& target) {
    for (absl::string_view part : absl::StrSplit(target.substr(target.empty() ? 0 : 1), '/')) {
        if (part.empty() || part == "." || part == "..") {
            return absl::InvalidArgumentError(
                absl::StrCat("bind target ", target, ": no plain absolute path"));
        }
    }
    for (const char* own : {"/proc", "/dev", "/in", "/out", "/sys"}) {
        if (target == own || absl::StartsWith(target, absl::StrCat(own, "/"))) {
            return absl::InvalidArgumentError(absl::StrCat("bind target ", target, ": ", own, " is taken"));
        }
    }
    return absl::OkStatus();
}

bool IsReadOnly(const Status& status) { return status.code() == ErrnoStatus(EROFS, "").code(); }

Status AddBind(const NativeSpec& spec, const Bind& bind, RootTree& tree) {
    if (bind.target.empty() || bind.target[0] != '/') {
        return absl::InvalidArgumentError(absl::StrCat("bind target ", bind.target, " is not absolute"));
    }
    SK_RETURN_IF_ERROR(CheckTarget(bind.target));
    struct stat st;
    if (fstat(bind.source.get(), &st) != 0) return ErrnoStatus(errno, "stat bind source");
    StatusOr<Fd> mount = absl::UnimplementedError("");
    if (bind.writable) {
        mount = CloneIdmapped(bind.source.get(), spec.caller_uid, spec.caller_gid, spec.uid, spec.gid,
                              kMountNosuid | kMountNodev);
    }
    if (absl::IsUnimplemented(mount.status())) {
        uint64_t attributes = bind.writable ? kMountNosuid | kMountNodev : kShown;
        mount = CloneMount(bind.source.get(), !bind.writable, attributes);
    }
    if (!mount.ok()) return Annotate(mount.status(), absl::StrCat("bind ", bind.target));
    std::string target = bind.target.substr(1), rest = target;
    const Status made = MakeMountPoint(MountPointBase(tree, &rest), rest, S_ISDIR(st.st_mode));
    // A link into what is attached later has no end yet, and what is attached by now is read-only: whether the point
    // is there is seen when the bind is attached.
    if (!made.ok() && !absl::IsNotFound(made) && !IsReadOnly(made)) return made;
    tree.mounts.push_back({*std::move(mount), target});
    return absl::OkStatus();
}

}  // namespace

Status MakeDirs(int base, const std::string& path) {
    Fd parent(SysOpenat2(base, ".", O_PATH | O_DIRECTORY | O_CLOEXEC, 0, kInside));
    if (!parent.ok()) return ErrnoStatus(errno, "open the new root");
    for (size_t start = 0, end; start <= path.size(); start = end + 1) {
        end = std::min(path.find('/', start), path.size());
        const std::string part = path.substr(0, end), name = path.substr(start, end - start);
        if (mkdirat(parent.get(), name.c_str(), 0755) != 0 && errno != EEXIST) {
            return ErrnoStatus(errno, absl::StrCat("make directory /", part));
        }
        parent.Reset(SysOpenat2(base, part.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC, 0, kInside));
        if (!parent.ok()) return ErrnoStatus(errno, absl::StrCat("enter directory /", part));
    }
    return absl::OkStatus();
}

Status WriteFileAt(int base, const std::string& name, const std::string& text) {
    Fd file(
        SysOpenat2(base, name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644, kInside));
    if (!file.ok()) return ErrnoStatus(errno, absl::StrCat("make /", name));
    // The launcher's umask is its user's.
    if (fchmod(file.get(), 0644) != 0) return ErrnoStatus(errno, absl::StrCat("mode of /", name));
    return Annotate(WriteAll(file.get(), text), absl::StrCat("write /", name));
}

Status AddHostBind(RootTree& tree, const std::string& host_path, const std::string& target) {
    Fd source(open(host_path.c_str(), O_PATH | O_CLOEXEC));
    if (!source.ok()) return absl::OkStatus();  // absent on this distribution
    struct stat st;
    if (fstat(source.get(), &st) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", host_path));
    if (S_ISDIR(st.st_mode)) {
        SK_RETURN_IF_ERROR(MakeDirs(tree.root.get(), target));
    } else if (S_ISREG(st.st_mode)) {
        SK_RETURN_IF_ERROR(WriteFileAt(tree.root.get(), target, ""));
    } else {
        return absl::OkStatus();
    }
    SK_ASSIGN_OR_RETURN(Fd mount, CloneMount(source.get(), false, kShown | kMountNoexec));
    tree.mounts.push_back({std::move(mount), target});
    return absl::OkStatus();
}

int MountAt(const RootTree& tree, const std::string& target) {
    for (const RootMount& row : tree.mounts) {
        if (row.target == target) return row.mount.get();
    }
    return -1;
}

std::string HostView() {
    std::string view;
    const auto add = [&](const char* path, int flags) {
        struct stat st{};
        // What is not there is part of the view: it may come.
        (void)fstatat(AT_FDCWD, absl::StrCat("/", path).c_str(), &st, flags);
        absl::StrAppend(&view, path, "=", st.st_dev, ":", st.st_ino, " ");
    };
    for (const char* name : kHostDirs) add(name, AT_SYMLINK_NOFOLLOW);
    for (const char* path : kHostEtc) add(path, 0);
    return view;
}

StatusOr<RootTree> BuildBase(const NativeSpec& spec, const std::string& resolver) {
    RootTree tree;
    SK_ASSIGN_OR_RETURN(tree.root,
                        NewTmpfs(kRootBytes, kRootInodes, "0755", 0, 0, kMountNosuid | kMountNodev));
    SK_RETURN_IF_ERROR(MakeDirs(tree.root.get(), "proc"));
    SK_RETURN_IF_ERROR(AddSystem(spec, resolver, tree));
    SK_RETURN_IF_ERROR(AddDev(tree));
    SK_RETURN_IF_ERROR(AddScratch(spec, tree));
    tree.base_mounts = tree.mounts.size();
    return tree;
}

Status AddOrder(const NativeSpec& spec, RootTree& tree) {
    if (!spec.rootfs.ok()) SK_RETURN_IF_ERROR(AddUser(spec, tree));
    if (tree.out.ok() && fchownat(tree.out.get(), "", spec.uid, spec.gid, AT_EMPTY_PATH) != 0) {
        return ErrnoStatus(errno, "own /out");
    }
    if (spec.tty) SK_RETURN_IF_ERROR(OpenPty(spec, tree));
    SK_RETURN_IF_ERROR(AddIn(spec, tree));
    for (const Bind& bind : spec.binds) SK_RETURN_IF_ERROR(AddBind(spec, bind, tree));
    return absl::OkStatus();
}

}  // namespace stockade::launch
