#include "tests/live/tree.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"

namespace stockade::live {
namespace {

Status Mount(const char* type, const std::string& dir) {
    if (mount(type, dir.c_str(), type, 0, nullptr) != 0) return ErrnoStatus(errno, absl::StrCat("mount on ", dir));
    return absl::OkStatus();
}

}  // namespace

Status OwnMounts() {
    static const Status done = []() -> Status {
        if (unshare(CLONE_NEWNS) != 0) return ErrnoStatus(errno, "leave the mount namespace");
        if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return ErrnoStatus(errno, "make mounts private");
        return absl::OkStatus();
    }();
    return done;
}

StatusOr<Tree> Tree::Create(const std::string& name) {
    SK_RETURN_IF_ERROR(OwnMounts());
    Tree tree;
    tree.dir_ = absl::StrCat("/tmp/", name, "_XXXXXX");
    if (mkdtemp(tree.dir_.data()) == nullptr) return ErrnoStatus(errno, "make a directory");
    SK_RETURN_IF_ERROR(Mount("tmpfs", tree.dir_));
    SK_ASSIGN_OR_RETURN(tree.root_, Fd::Open(tree.dir_, O_PATH | O_DIRECTORY));
    return tree;
}

Tree& Tree::operator=(Tree&& other) noexcept {
    std::swap(dir_, other.dir_);
    std::swap(root_, other.root_);
    std::swap(made_, other.made_);
    return *this;
}

Tree::~Tree() {
    if (dir_.empty()) return;
    root_.Reset();
    // Lazy: a failed test may still hold descriptors. What cannot be undone ends with the namespace.
    (void)umount2(dir_.c_str(), MNT_DETACH);
    (void)rmdir(dir_.c_str());
}

Status Tree::Parents(const std::string& path) {
    for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
        std::string part = path.substr(0, at);
        if (!made_.insert(part).second) continue;
        if (mkdirat(root_.get(), part.c_str() + 1, 0755) != 0 && errno != EEXIST) return ErrnoStatus(errno, absl::StrCat("mkdir ", part));
    }
    return absl::OkStatus();
}

StatusOr<Fd> Tree::MakeDir(const std::string& path) {
    if (path == "/") return Fd::Dup(root_.get());
    SK_RETURN_IF_ERROR(Parents(path + "/"));
    return Open(path, O_PATH);
}

StatusOr<Fd> Tree::MakeFile(const std::string& path) {
    SK_RETURN_IF_ERROR(Parents(path));
    return Fd::OpenAt(root_, path.substr(1), O_RDWR | O_CREAT, 0644);
}

StatusOr<Fd> Tree::Open(const std::string& path, int flags) const { return Fd::OpenAt(root_, path.substr(1), flags); }

Status Tree::Clear() {
    root_.Reset();
    made_.clear();
    if (umount2(dir_.c_str(), MNT_DETACH) != 0) return ErrnoStatus(errno, "empty the tree");
    SK_RETURN_IF_ERROR(Mount("tmpfs", dir_));
    SK_ASSIGN_OR_RETURN(root_, Fd::Open(dir_, O_PATH | O_DIRECTORY));
    return absl::OkStatus();
}

}  // namespace stockade::live
