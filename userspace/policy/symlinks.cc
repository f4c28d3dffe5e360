#include "userspace/policy/symlinks.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <deque>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"

namespace stockade::policy {
namespace {

// As the kernel's MAXSYMLINKS.
constexpr int kMaxLinks = 40;

// O_PATH descriptor of a path inside the root whose last component is not followed.
StatusOr<Fd> OpenInRoot(int root_fd, const std::string& path) {
    open_how how{};
    how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
    const long fd = syscall(SYS_openat2, root_fd, path.c_str(), &how, sizeof(how));
    if (fd < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
    return Fd(static_cast<int>(fd));
}

std::string Join(const std::vector<std::string>& parts) {
    return absl::StrCat("/", absl::StrJoin(parts, "/"));
}

}  // namespace

StatusOr<const RootLinks::Place*> RootLinks::Look(const std::string& path) {
    const auto seen = seen_.find(path);
    if (seen != seen_.end()) return &seen->second;
    Place place;
    const StatusOr<Fd> fd = OpenInRoot(root_fd_, path);
    struct stat st{};
    if (fd.ok() && fstat(fd->get(), &st) == 0) place.kind = S_ISLNK(st.st_mode) ? Kind::kLink : Kind::kPlain;
    if (place.kind == Kind::kLink) {
        char target[PATH_MAX];
        const ssize_t length = readlinkat(fd->get(), "", target, sizeof(target));
        if (length <= 0) return ErrnoStatus(errno, absl::StrCat("readlink ", path));
        place.target.assign(target, static_cast<size_t>(length));
        place.foreign = st.st_uid != 0 && st.st_uid != geteuid();
    }
    return &seen_.emplace(path, std::move(place)).first->second;
}

StatusOr<FollowedPath> RootLinks::Follow(absl::string_view path) {
    FollowedPath out;
    std::vector<std::string> done;
    std::deque<std::string> todo = absl::StrSplit(path, '/', absl::SkipEmpty());
    int links = 0;
    bool missing = false;
    while (!todo.empty()) {
        std::string name = std::move(todo.front());
        todo.pop_front();
        if (name == ".") continue;
        if (name == "..") {
            if (!done.empty()) done.pop_back();
            continue;
        }
        done.push_back(std::move(name));
        if (missing) continue;
        SK_ASSIGN_OR_RETURN(const Place* place, Look(Join(done)));
        missing = place->kind == Kind::kMissing;
        if (place->kind != Kind::kLink) continue;
        if (++links > kMaxLinks)
            return absl::FailedPreconditionError(absl::StrCat(path, ": more than 40 symbolic links"));
        out.foreign |= place->foreign;
        done.pop_back();
        if (place->target[0] == '/') done.clear();
        std::deque<std::string> parts = absl::StrSplit(place->target, '/', absl::SkipEmpty());
        todo.insert(todo.begin(), parts.begin(), parts.end());
    }
    out.path = Join(done);
    return out;
}

}  // namespace stockade::policy
