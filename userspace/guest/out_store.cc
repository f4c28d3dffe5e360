#include "userspace/guest/out_store.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/errno.h"

namespace stockade::guest {
namespace {

// Set-uid, set-gid, sticky and the writing of others stay behind.
constexpr uint32_t kModeMask = 0755;
constexpr size_t kMaxPathBytes = 4095;  // PATH_MAX with its zero
constexpr size_t kMaxNameBytes = 255;   // NAME_MAX

int OpenBeneath(int dir, const std::string& path, uint64_t flags, uint64_t mode) {
    open_how how{};
    how.flags = flags | O_CLOEXEC;
    how.mode = mode;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
    return static_cast<int>(syscall(SYS_openat2, dir, path.c_str(), &how, sizeof(how)));
}

Status MakeDirectory(int dir, const std::string& path, uint32_t mode) {
    const size_t slash = path.rfind('/');
    Fd parent(slash == std::string::npos
                  ? fcntl(dir, F_DUPFD_CLOEXEC, 3)
                  : OpenBeneath(dir, path.substr(0, slash), O_RDONLY | O_DIRECTORY, 0));
    if (!parent.ok()) return ErrnoStatus(errno, "open what the directory lies in");
    const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    // Whatever mode it had: what is below has to be written.
    if (mkdirat(parent.get(), name.c_str(), (mode & kModeMask) | 0700) != 0)
        return ErrnoStatus(errno, "make a directory");
    return absl::OkStatus();
}

}  // namespace

Status CheckOutPath(absl::string_view path, uint32_t max_depth) {
    if (path.empty() || path.size() > kMaxPathBytes)
        return absl::InvalidArgumentError("a path of no or too many bytes");
    if (path.find('\0') != absl::string_view::npos)
        return absl::InvalidArgumentError("a path with a zero byte");
    uint32_t depth = 0;
    for (absl::string_view part : absl::StrSplit(path, '/')) {
        if (part.empty() || part == "." || part == "..")
            return absl::InvalidArgumentError("a path that is not plainly below");
        if (part.size() > kMaxNameBytes) return absl::InvalidArgumentError("a name of too many bytes");
        // The last part is the entry itself.
        if (++depth > max_depth + 1) return absl::InvalidArgumentError("a path over the limit of depth");
    }
    return absl::OkStatus();
}

Status OutStore::Begin(const Entry& entry) {
    SK_RETURN_IF_ERROR(CheckOutPath(entry.path(), limits_.max_depth));
    if (++entries_ > limits_.max_entries) return absl::ResourceExhaustedError("more entries than the limit");
    if (entry.size_bytes() > limits_.max_bytes - promised_bytes_) {
        return absl::ResourceExhaustedError("more bytes than the limit");
    }
    promised_bytes_ += entry.size_bytes();
    if (entry.directory()) {
        SK_RETURN_IF_ERROR(MakeDirectory(directory_, entry.path(), entry.mode()));
        ++report_.directories;
        return absl::OkStatus();
    }
    file_ = Fd(OpenBeneath(directory_, entry.path(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
    if (!file_.ok()) return ErrnoStatus(errno, "make a file");
    file_mode_ = entry.mode() & kModeMask;
    return absl::OkStatus();
}

Status OutStore::Bytes(absl::string_view bytes) {
    SK_RETURN_IF_ERROR(WriteAll(file_.get(), bytes));
    report_.bytes += bytes.size();
    return absl::OkStatus();
}

Status OutStore::Done() {
    if (!file_.ok()) return absl::OkStatus();  // a directory
    if (fchmod(file_.get(), file_mode_) != 0) return ErrnoStatus(errno, "set a file's mode");
    file_.Reset();
    ++report_.files;
    return absl::OkStatus();
}

Status OutStore::AddSkipped(const Skipped& skipped) {
    // A sum that wraps would tell of fewer.
    report_.skipped_count +=
        std::min(std::max<uint64_t>(skipped.count(), 1), UINT64_MAX - report_.skipped_count);
    if (report_.skipped.size() < limits_.max_reported)
        report_.skipped.emplace_back(skipped.path(), skipped.reason());
    return absl::OkStatus();
}

}  // namespace stockade::guest
