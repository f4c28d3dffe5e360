#include "userspace/launch/in_copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/launch/fs_ids.h"
#include "userspace/launch/syscalls.h"

namespace stockade::launch {
namespace {

constexpr int kMaxEntries = 65536;  // inodes of the tmpfs that takes them
constexpr int kMaxDepth = 64;       // descriptors held at once; git trees stay under 20
constexpr uint64_t kBeneath = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;

class InCopier {
  public:
    explicit InCopier(const NativeSpec& spec) : spec_(spec), left_bytes_(spec.in_copy_max_bytes) {}

    Status Directory(int source, int target, int depth) {
        if (depth > kMaxDepth) return absl::ResourceExhaustedError("/in: over 64 directories deep");
        std::vector<std::string> names;
        SK_RETURN_IF_ERROR(List(source, &names));
        for (const std::string& name : names) {
            if (++entries_ > kMaxEntries) return absl::ResourceExhaustedError("/in: over 65,536 entries");
            SK_RETURN_IF_ERROR(Entry(source, target, name, depth));
        }
        return absl::OkStatus();
    }

  private:
    Status List(int source, std::vector<std::string>* names) {
        ScopedFsIds as_caller(spec_.caller_uid, spec_.caller_gid);
        int fd = openat(source, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0) return errno == EACCES ? absl::OkStatus() : ErrnoStatus(errno, "/in: list");
        DIR* dir = fdopendir(fd);
        if (dir == nullptr) {
            close(fd);
            return ErrnoStatus(errno, "/in: list");
        }
        while (dirent* entry = readdir(dir)) {
            std::string name = entry->d_name;
            if (name != "." && name != "..") names->push_back(name);
            if (names->size() > static_cast<size_t>(kMaxEntries)) break;
        }
        closedir(dir);
        return absl::OkStatus();
    }

    Fd OpenAsCaller(int source, const std::string& name, uint64_t flags) {
        ScopedFsIds as_caller(spec_.caller_uid, spec_.caller_gid);
        return Fd(SysOpenat2(source, name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0, kBeneath));
    }

    Status Entry(int source, int target, const std::string& name, int depth) {
        struct stat st;
        if (fstatat(source, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return absl::OkStatus();
        if (S_ISLNK(st.st_mode)) return Link(source, target, name);
        if (S_ISREG(st.st_mode)) return File(source, target, name);
        if (!S_ISDIR(st.st_mode)) return absl::OkStatus();
        Fd below = OpenAsCaller(source, name, O_RDONLY | O_DIRECTORY);
        if (!below.ok()) return absl::OkStatus();
        if (mkdirat(target, name.c_str(), 0700) != 0) return ErrnoStatus(errno, "/in: make directory");
        Fd made(SysOpenat2(target, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, kBeneath));
        if (!made.ok()) return ErrnoStatus(errno, "/in: open directory");
        SK_RETURN_IF_ERROR(Own(made.get(), st.st_mode));
        return Directory(below.get(), made.get(), depth + 1);
    }

    Status Link(int source, int target, const std::string& name) {
        char text[4096];
        ssize_t n = readlinkat(source, name.c_str(), text, sizeof(text) - 1);
        if (n < 0) return absl::OkStatus();
        text[n] = '\0';
        // Read inside, where it leads to the sandbox's own files at most.
        if (symlinkat(text, target, name.c_str()) != 0) return ErrnoStatus(errno, "/in: copy link");
        return absl::OkStatus();
    }

    Status File(int source, int target, const std::string& name) {
        Fd from = OpenAsCaller(source, name, O_RDONLY | O_NONBLOCK);
        struct stat st;
        if (!from.ok() || fstat(from.get(), &st) != 0 || !S_ISREG(st.st_mode)) return absl::OkStatus();
        Fd to(openat(target, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        if (!to.ok()) return ErrnoStatus(errno, "/in: make file");
        char buffer[65536];
        for (;;) {
            ssize_t n = read(from.get(), buffer, sizeof(buffer));
            if (n < 0) return ErrnoStatus(errno, absl::StrCat("/in: read ", name));
            if (n == 0) break;
            if (static_cast<uint64_t>(n) > left_bytes_) {
                return absl::ResourceExhaustedError(
                    absl::StrCat("/in: over ", spec_.in_copy_max_bytes, " bytes to copy"));
            }
            left_bytes_ -= static_cast<uint64_t>(n);
            SK_RETURN_IF_ERROR(WriteAll(to.get(), absl::string_view(buffer, static_cast<size_t>(n))));
        }
        return Own(to.get(), st.st_mode);
    }

    Status Own(int fd, mode_t mode) {
        if (fchown(fd, spec_.uid, spec_.gid) != 0 || fchmod(fd, (mode & 0755) | 0400) != 0) {
            return ErrnoStatus(errno, "/in: own");
        }
        return absl::OkStatus();
    }

    const NativeSpec& spec_;
    uint64_t left_bytes_;
    int entries_ = 0;
};

}  // namespace

Status CopyIn(int source, int target, const NativeSpec& spec) {
    return InCopier(spec).Directory(source, target, 0);
}

}  // namespace stockade::launch
