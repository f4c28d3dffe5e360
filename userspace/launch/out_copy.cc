#include "userspace/launch/out_copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"
#include "userspace/base/sha256.h"
#include "userspace/launch/fs_ids.h"
#include "userspace/launch/syscalls.h"

namespace stockade::launch {
namespace {

constexpr uint64_t kBeneath = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
// The bits that may cross: set-uid, set-gid and sticky stay behind.
constexpr mode_t kModeMask = 0755;

class OutCopier {
  public:
    OutCopier(uid_t uid, gid_t gid, const OutLimits& limits, bool own_files)
        : uid_(uid), gid_(gid), limits_(limits), own_files_(own_files) {}

    void Directory(int source, int target, const std::string& prefix, uint32_t depth);
    OutReport TakeReport() { return std::move(report_); }

  private:
    void Entry(int source, int target, const std::string& name, const std::string& path, uint32_t depth);
    void Below(const Fd& source, int target, const std::string& name, const std::string& path,
               uint32_t depth);
    void File(const Fd& source, int target, const std::string& name, const std::string& path);
    // Why the rules let no such file leave; empty = one does, and has counted it.
    std::string AgainstRules(const std::string& path, uint64_t bytes);
    Status Bytes(const Fd& source, const Fd& target, uint64_t promised, OutCopied* copied);
    Fd MakeTemporary(int target, std::string* name);
    void Drop(const std::string& path, std::string reason) {
        ++report_.dropped_count;
        if (report_.dropped.size() < limits_.max_reported)
            report_.dropped.push_back({path, std::move(reason)});
    }
    std::string Refusal(const struct stat& st, bool* directory) const;

    uid_t uid_;
    gid_t gid_;
    OutLimits limits_;
    bool own_files_;  // no name of a file is anywhere but below the source
    OutReport report_;
    uint32_t entries_ = 0;
    std::vector<uint32_t> taken_;  // files, by rule
};

// Names of a directory; at most `max`, the rest is flagged.
Status ListNames(int fd, size_t max, std::vector<std::string>* names, bool* more) {
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* dir = copy < 0 ? nullptr : fdopendir(copy);
    if (dir == nullptr) {
        int error = errno;
        if (copy >= 0) close(copy);
        return ErrnoStatus(error, "list");
    }
    while (dirent* entry = readdir(dir)) {
        std::string name = entry->d_name;
        if (name == "." || name == "..") continue;
        if (names->size() == max) {
            *more = true;
            break;
        }
        names->push_back(std::move(name));
    }
    closedir(dir);
    return absl::OkStatus();
}

void OutCopier::Directory(int source, int target, const std::string& prefix, uint32_t depth) {
    std::vector<std::string> names;
    bool more = false;
    Status listed = ListNames(source, limits_.max_entries - entries_, &names, &more);
    if (!listed.ok()) return Drop(prefix, std::string(listed.message()));
    for (const std::string& name : names) {
        if (prefix.empty() && !limits_.left_out.empty() && name == limits_.left_out) continue;
        std::string path = prefix.empty() ? name : absl::StrCat(prefix, "/", name);
        if (entries_ >= limits_.max_entries) {
            Drop(path, "over the limit of entries");
            continue;
        }
        ++entries_;
        Entry(source, target, name, path, depth);
    }
    if (more) Drop(absl::StrCat(prefix, "/..."), "over the limit of entries");
}

std::string OutCopier::Refusal(const struct stat& st, bool* directory) const {
    *directory = S_ISDIR(st.st_mode);
    if (*directory) return "";
    if (S_ISLNK(st.st_mode)) return "symlink";
    if (S_ISFIFO(st.st_mode)) return "fifo";
    if (S_ISSOCK(st.st_mode)) return "socket";
    if (!S_ISREG(st.st_mode)) return "device";
    if (st.st_nlink > 1 && !own_files_) return "hard link";
    if (st.st_nlink == 0) return "removed meanwhile";
    return "";
}

void OutCopier::Entry(int source, int target, const std::string& name, const std::string& path,
                      uint32_t depth) {
    // O_PATH opens nothing: a FIFO does not block, a device does not act. What is then judged is
    // what was opened, whatever the name means a moment later.
    Fd found(SysOpenat2(source, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC, 0,
                        RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV));
    struct stat st;
    if (!found.ok() || fstat(found.get(), &st) != 0) return Drop(path, strerrordesc_np(errno));
    bool directory = false;
    std::string refusal = Refusal(st, &directory);
    if (!refusal.empty()) return Drop(path, refusal);
    uint64_t flags = (directory ? O_RDONLY | O_DIRECTORY : O_RDONLY | O_NONBLOCK) | O_NOFOLLOW | O_CLOEXEC;
    Fd opened(SysOpenat2(source, name.c_str(), flags, 0, kBeneath));
    struct stat now;
    if (!opened.ok() || fstat(opened.get(), &now) != 0) return Drop(path, strerrordesc_np(errno));
    if (now.st_ino != st.st_ino || now.st_dev != st.st_dev) return Drop(path, "swapped while it was copied");
    if (directory) return Below(opened, target, name, path, depth);
    File(opened, target, name, path);
}

void OutCopier::Below(const Fd& source, int target, const std::string& name, const std::string& path,
                      uint32_t depth) {
    if (depth + 1 > limits_.max_depth) return Drop(path, "over the limit of depth");
    Fd made;
    bool is_new = false;
    {
        ScopedFsIds as_caller(uid_, gid_);
        is_new = mkdirat(target, name.c_str(), 0755) == 0;
        if (!is_new && errno != EEXIST) return Drop(path, absl::StrCat("target: ", strerrordesc_np(errno)));
        made = Fd(
            SysOpenat2(target, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, kBeneath));
    }
    if (!made.ok()) {
        // mkdirat(2) said that something of this name is there.
        return Drop(path, errno == ENOTDIR || errno == ELOOP
                              ? "target: a file or link of this name is in the way of the directory"
                              : absl::StrCat("target: ", strerrordesc_np(errno)));
    }
    const uint32_t files = report_.files;
    Directory(source.get(), made.get(), path, depth + 1);
    if (!limits_.rules.has_value() || !is_new || report_.files != files) return;
    // Nobody has declared a directory of this name: it was only the way to files.
    ScopedFsIds as_caller(uid_, gid_);
    (void)unlinkat(target, name.c_str(), AT_REMOVEDIR);  // one that somebody has put something into stays
}

std::string OutCopier::AgainstRules(const std::string& path, uint64_t bytes) {
    if (!limits_.rules.has_value()) return "";
    taken_.resize(limits_.rules->size());
    const std::vector<absl::string_view> parts = policy::SplitPath(path);
    for (size_t i = 0; i < limits_.rules->size(); ++i) {
        const OutRule& rule = (*limits_.rules)[i];
        if (!policy::MatchPattern(rule.pattern, parts)) continue;
        if (bytes > rule.max_bytes) return absl::StrCat("over the ", rule.max_bytes, " bytes that are declared");
        if (taken_[i] >= rule.max_files) return absl::StrCat("over the ", rule.max_files, " files that are declared");
        ++taken_[i];
        return "";
    }
    return "not declared";
}

Fd OutCopier::MakeTemporary(int target, std::string* name) {
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) return Fd();
    *name = absl::StrCat(".stockade-", absl::Hex(random, absl::kZeroPad16));
    ScopedFsIds as_caller(uid_, gid_);
    return Fd(openat(target, name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
}

Status OutCopier::Bytes(const Fd& source, const Fd& target, uint64_t promised, OutCopied* copied) {
    char buffer[65536];
    Sha256Stream digest;
    for (;;) {
        ssize_t n = read(source.get(), buffer, sizeof(buffer));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ErrnoStatus(errno, "read");
        if (n == 0) {
            if (limits_.rules.has_value()) copied->sha256 = digest.Finish();
            return absl::OkStatus();
        }
        copied->bytes += static_cast<uint64_t>(n);
        // A file that grows under the copy is cut at what it was measured with.
        if (copied->bytes > promised) return absl::ResourceExhaustedError("grew while it was copied");
        const absl::string_view bytes(buffer, static_cast<size_t>(n));
        if (limits_.rules.has_value()) digest.Add(bytes);  // nobody else asks for it
        SK_RETURN_IF_ERROR(WriteAll(target.get(), bytes));
    }
}

void OutCopier::File(const Fd& source, int target, const std::string& name, const std::string& path) {
    struct stat st;
    if (fstat(source.get(), &st) != 0) return Drop(path, strerrordesc_np(errno));
    const auto size = static_cast<uint64_t>(st.st_size);
    if (size > limits_.max_bytes - report_.bytes) return Drop(path, "over the size limit");
    if (std::string against = AgainstRules(path, size); !against.empty()) return Drop(path, std::move(against));
    std::string temporary;
    Fd made = MakeTemporary(target, &temporary);
    if (!made.ok()) return Drop(path, absl::StrCat("target: ", strerrordesc_np(errno)));
    OutCopied copied{.path = path};
    Status status = Bytes(source, made, size, &copied);
    if (status.ok() &&
        (fchown(made.get(), uid_, gid_) != 0 || fchmod(made.get(), st.st_mode & kModeMask) != 0)) {
        status = ErrnoStatus(errno, "own");
    }
    ScopedFsIds as_caller(uid_, gid_);
    // The name of an old file, or of a link that waits there, is replaced and never followed.
    if (status.ok() && renameat(target, temporary.c_str(), target, name.c_str()) != 0) {
        status = errno == EISDIR || errno == ENOTEMPTY
                     ? absl::AlreadyExistsError("target: a directory of this name is in the way of the file")
                     : ErrnoStatus(errno, "target");
    }
    if (!status.ok()) {
        (void)unlinkat(target, temporary.c_str(), 0);  // the caller's directory; it may be gone
        return Drop(path, std::string(status.message()));
    }
    ++report_.files;
    report_.bytes += copied.bytes;
    if (limits_.rules.has_value() && report_.copied.size() < limits_.max_reported) report_.copied.push_back(std::move(copied));
}

// A tmpfs of its own, as a sandbox's /out is: a hard link never leaves its file system, so all names of a file are below.
bool IsOwnTmpfs(int fd) {
    constexpr long kTmpfsMagic = 0x01021994;
    struct statfs fs;
    struct statx sx;
    return fstatfs(fd, &fs) == 0 && fs.f_type == kTmpfsMagic &&
           statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &sx) == 0 &&
           (sx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

}  // namespace

StatusOr<OutReport> CopyOut(int source_fd, int target_fd, uid_t caller_uid, gid_t caller_gid,
                            const OutLimits& limits) {
    struct stat source, target;
    if (fstat(source_fd, &source) != 0 || !S_ISDIR(source.st_mode)) {
        return absl::InvalidArgumentError("copy out: the source is no directory");
    }
    if (fstat(target_fd, &target) != 0 || !S_ISDIR(target.st_mode)) {
        return absl::InvalidArgumentError("copy out: the target is no directory");
    }
    OutCopier copier(caller_uid, caller_gid, limits, IsOwnTmpfs(source_fd));
    copier.Directory(source_fd, target_fd, "", 0);
    return copier.TakeReport();
}

StatusOr<std::string> ReadOut(int source_fd, const std::string& name, uint64_t max_bytes) {
    // A FIFO does not block, and reading a device that acts when it is read comes after looking at what it is.
    Fd found(SysOpenat2(source_fd, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV));
    struct stat st, now;
    if (!found.ok() || fstat(found.get(), &st) != 0) return ErrnoStatus(errno, name);
    if (!S_ISREG(st.st_mode)) return absl::InvalidArgumentError(absl::StrCat(name, " is no regular file"));
    if (static_cast<uint64_t>(st.st_size) > max_bytes) return absl::ResourceExhaustedError(absl::StrCat(name, " has over ", max_bytes, " bytes"));
    Fd opened(SysOpenat2(source_fd, name.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0, kBeneath));
    if (!opened.ok() || fstat(opened.get(), &now) != 0) return ErrnoStatus(errno, name);
    if (now.st_ino != st.st_ino || now.st_dev != st.st_dev) return absl::AbortedError(absl::StrCat(name, " was swapped while it was read"));
    return ReadAll(opened.get(), max_bytes);
}

}  // namespace stockade::launch
