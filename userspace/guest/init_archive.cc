#include "userspace/guest/init_archive.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"

namespace stockade::guest {
namespace {

const char* KindName(mode_t mode) {
    if (S_ISLNK(mode)) return "symlink";
    if (S_ISFIFO(mode)) return "fifo";
    if (S_ISSOCK(mode)) return "socket";
    return "device";
}

class Archiver {
  public:
    Archiver(const OutLimits& limits, GuestPort& port) : limits_(limits), port_(port) {}

    Status Directory(int fd, const std::string& prefix, uint32_t depth);
    // Those that got no frame of their own.
    Status TellRest();

  private:
    Status One(int dir, const std::string& name, const std::string& path, uint32_t depth);
    Status File(const Fd& fd, const std::string& path, const struct stat& st);
    Status Bytes(const Fd& fd, uint64_t size);
    Status Skip(const std::string& path, const std::string& reason);

    OutLimits limits_;
    GuestPort& port_;
    uint64_t bytes_ = 0, skipped_ = 0, untold_ = 0;
    uint32_t entries_ = 0;
};

Status Archiver::Skip(const std::string& path, const std::string& reason) {
    if (++skipped_ > limits_.max_reported) {
        ++untold_;
        return absl::OkStatus();
    }
    Skipped skipped;
    skipped.set_path(path.substr(0, 4096));
    skipped.set_reason(reason);
    skipped.set_count(1);
    return port_.Tell(Kind::kSkipped, skipped);
}

Status Archiver::TellRest() {
    if (untold_ == 0) return absl::OkStatus();
    Skipped skipped;
    skipped.set_reason("and more");
    skipped.set_count(untold_);
    return port_.Tell(Kind::kSkipped, skipped);
}

Status Archiver::Directory(int fd, const std::string& prefix, uint32_t depth) {
    std::vector<std::string> names;
    DIR* dir = fdopendir(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (dir == nullptr) return Skip(prefix, strerrordesc_np(errno));
    while (dirent* entry = readdir(dir)) {
        const std::string name = entry->d_name;
        if (name != "." && name != "..") names.push_back(name);
    }
    closedir(dir);
    // The same tree gives the same stream.
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
        SK_RETURN_IF_ERROR(One(fd, name, prefix.empty() ? name : absl::StrCat(prefix, "/", name), depth));
    }
    return absl::OkStatus();
}

Status Archiver::One(int dir, const std::string& name, const std::string& path, uint32_t depth) {
    struct stat st;
    if (fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return Skip(path, strerrordesc_np(errno));
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return Skip(path, KindName(st.st_mode));
    if (!CheckOutPath(path, limits_.max_depth).ok()) return Skip(path, "over the limit of depth");
    if (entries_ >= limits_.max_entries) return Skip(path, "over the limit of entries");
    Fd fd(openat(dir, name.c_str(),
                 O_RDONLY | O_NOFOLLOW | O_CLOEXEC | (S_ISDIR(st.st_mode) ? O_DIRECTORY : O_NONBLOCK)));
    if (!fd.ok()) return Skip(path, strerrordesc_np(errno));
    if (S_ISREG(st.st_mode)) return File(fd, path, st);
    ++entries_;
    Entry entry;
    entry.set_path(path);
    entry.set_directory(true);
    entry.set_mode(st.st_mode & 07777);
    SK_RETURN_IF_ERROR(port_.Tell(Kind::kEntry, entry));
    return Directory(fd.get(), path, depth + 1);
}

Status Archiver::File(const Fd& fd, const std::string& path, const struct stat& st) {
    const auto size = static_cast<uint64_t>(st.st_size);
    if (size > limits_.max_bytes - bytes_) return Skip(path, "over the size limit");
    ++entries_;
    bytes_ += size;
    Entry entry;
    entry.set_path(path);
    entry.set_mode(st.st_mode & 07777);
    entry.set_size_bytes(size);
    SK_RETURN_IF_ERROR(port_.Tell(Kind::kEntry, entry));
    return Bytes(fd, size);
}

Status Archiver::Bytes(const Fd& fd, uint64_t size) {
    std::string buffer(kMaxDataBytes, '\0');
    while (size > 0) {
        const ssize_t n = read(fd.get(), buffer.data(), std::min<uint64_t>(buffer.size(), size));
        if (n < 0 && errno == EINTR) continue;
        // The size is promised, so an error here ends the run; a tmpfs has none of its own.
        if (n <= 0) return ErrnoStatus(n < 0 ? errno : EIO, "read a file of /out");
        SK_RETURN_IF_ERROR(
            port_.Send(Kind::kEntryData, absl::string_view(buffer.data(), static_cast<size_t>(n))));
        size -= static_cast<uint64_t>(n);
    }
    return absl::OkStatus();
}

}  // namespace

Status ArchiveOut(int directory, const OutLimits& limits, GuestPort& port) {
    Archiver archiver(limits, port);
    SK_RETURN_IF_ERROR(archiver.Directory(directory, "", 0));
    return archiver.TellRest();
}

}  // namespace stockade::guest
