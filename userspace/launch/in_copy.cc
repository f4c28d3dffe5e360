#include "userspace/launch/in_copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/errno.h"
#include "userspace/base/sha256.h"
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

    // Only the files of the list, and the directories that lead to them.
    Status Listed(int source, int target) {
        for (const InFile& file : spec_.in_files) {
            std::vector<std::string> parts = absl::StrSplit(file.path, '/');
            const std::string name = parts.back();
            parts.pop_back();
            Fd made;
            for (const std::string& part : parts) {
                const int at = made.ok() ? made.get() : target;
                if (mkdirat(at, part.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(errno, "/in: make directory");
                Fd next(SysOpenat2(at, part.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, kBeneath));
                if (!next.ok()) return ErrnoStatus(errno, "/in: open directory");
                SK_RETURN_IF_ERROR(Own(next.get(), 0755));
                made = std::move(next);
            }
            SK_RETURN_IF_ERROR(ListedFile(source, made.ok() ? made.get() : target, file, name));
        }
        return absl::OkStatus();
    }

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

    Status ListedFile(int source, int target, const InFile& file, const std::string& name) {
        const auto changed = [&file] {
            return absl::FailedPreconditionError(absl::StrCat("/in: ", file.path, " is not any more what it was when it was looked at"));
        };
        Fd from = OpenAsCaller(source, file.path, O_RDONLY | O_NONBLOCK);
        struct stat st;
        if (!from.ok() || fstat(from.get(), &st) != 0 || !S_ISREG(st.st_mode) || static_cast<uint64_t>(st.st_size) != file.bytes) return changed();
        Sha256Stream digest;
        const uint64_t left = left_bytes_;
        SK_RETURN_IF_ERROR(Bytes(from, target, name, st.st_mode, &digest));
        const std::array<uint8_t, 32> got = digest.Finish();
        const bool same = left - left_bytes_ == file.bytes && file.sha256.size() == got.size() && memcmp(got.data(), file.sha256.data(), got.size()) == 0;
        return same ? absl::OkStatus() : changed();
    }

    Status File(int source, int target, const std::string& name) {
        Fd from = OpenAsCaller(source, name, O_RDONLY | O_NONBLOCK);
        struct stat st;
        if (!from.ok() || fstat(from.get(), &st) != 0 || !S_ISREG(st.st_mode)) return absl::OkStatus();
        return Bytes(from, target, name, st.st_mode, nullptr);
    }

    // `digest` may be null.
    Status Bytes(const Fd& from, int target, const std::string& name, mode_t mode, Sha256Stream* digest) {
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
            const absl::string_view bytes(buffer, static_cast<size_t>(n));
            if (digest != nullptr) digest->Add(bytes);
            SK_RETURN_IF_ERROR(WriteAll(to.get(), bytes));
        }
        return Own(to.get(), mode);
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
    InCopier copier(spec);
    return spec.in_listed ? copier.Listed(source, target) : copier.Directory(source, target, 0);
}

}  // namespace stockade::launch
