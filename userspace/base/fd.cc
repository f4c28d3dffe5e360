#include "userspace/base/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"

namespace stockade {

void Fd::Reset(int fd) {
    // An error of close() on Linux leaves the descriptor closed; there is nothing to retry.
    if (fd_ >= 0) (void)close(fd_);
    fd_ = fd;
}

StatusOr<Fd> Fd::Open(const std::string& path, int flags, unsigned mode) {
    int fd = open(path.c_str(), flags | O_CLOEXEC, mode);
    if (fd < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
    return Fd(fd);
}

StatusOr<Fd> Fd::OpenAt(const Fd& dir, const std::string& path, int flags, unsigned mode) {
    int fd = openat(dir.get(), path.c_str(), flags | O_CLOEXEC, mode);
    if (fd < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
    return Fd(fd);
}

StatusOr<Fd> Fd::Dup(int borrowed) {
    int fd = fcntl(borrowed, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) return ErrnoStatus(errno, "duplicate a descriptor");
    return Fd(fd);
}

bool FillStandardStreams() {
    for (int fd = 0; fd < 3; ++fd) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        // The lowest free number is what open(2) takes.
        if (open("/dev/null", O_RDWR) != fd) return false;
    }
    return true;
}

StatusOr<std::string> ReadAll(int fd, size_t max_bytes) {
    std::string out;
    char buffer[16384];
    for (;;) {
        ssize_t n = read(fd, buffer, sizeof(buffer));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ErrnoStatus(errno, "read");
        if (n == 0) return out;
        if (out.size() + static_cast<size_t>(n) > max_bytes) {
            return absl::ResourceExhaustedError(absl::StrCat("more than ", max_bytes, " bytes"));
        }
        out.append(buffer, static_cast<size_t>(n));
    }
}

Status WriteAll(int fd, absl::string_view bytes) {
    while (!bytes.empty()) {
        ssize_t n = write(fd, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        // Whoever shares a terminal or a pipe can make it non-blocking.
        if (n < 0 && errno == EAGAIN) {
            pollfd entry{.fd = fd, .events = POLLOUT, .revents = 0};
            (void)poll(&entry, 1, -1);  // an error is the next write's too
            continue;
        }
        if (n < 0) return ErrnoStatus(errno, "write");
        bytes.remove_prefix(static_cast<size_t>(n));
    }
    return absl::OkStatus();
}

Status ReplaceFile(const std::string& path, absl::string_view bytes, unsigned mode, Synced synced) {
    const size_t name = path.rfind('/') + 1;
    const std::string fresh = absl::StrCat(path.substr(0, name), ".", path.substr(name), ".new");
    SK_ASSIGN_OR_RETURN(Fd fd, Fd::Open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode));
    Status status = WriteAll(fd.get(), bytes);
    // The name must not lead to what has not been written yet.
    if (status.ok() && synced == Synced::kYes && fdatasync(fd.get()) != 0) status = ErrnoStatus(errno, "sync");
    if (status.ok() && rename(fresh.c_str(), path.c_str()) != 0) {
        status = ErrnoStatus(errno, absl::StrCat("rename to ", path));
    }
    if (!status.ok()) (void)unlink(fresh.c_str());
    return Annotate(status, absl::StrCat("write ", path));
}

StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
    SK_ASSIGN_OR_RETURN(Fd fd, Fd::Open(path, O_RDONLY));
    auto text = ReadAll(fd.get(), max_bytes);
    if (!text.ok()) return Annotate(text.status(), path);
    return text;
}

}  // namespace stockade
