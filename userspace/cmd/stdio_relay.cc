#include "userspace/cmd/stdio_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/base/sha256.h"

namespace stockade::cmd {
namespace {

constexpr size_t kChunkBytes = 16384;

enum class AtStop { kLeave, kDrain };

// Until `from` ends, `to` breaks, or `stop` is readable; kDrain: what lies in `from` by then is copied
// yet. The error of `to`, if it was that.
template <typename Take>
Status CopyTo(int from, int stop, AtStop at_stop, const Take& take) {
    char buffer[kChunkBytes];
    while (true) {
        pollfd fds[] = {{.fd = from, .events = POLLIN, .revents = 0},
                        {.fd = stop, .events = POLLIN, .revents = 0}};
        if (poll(fds, 2, -1) < 0) {
            if (errno == EINTR) continue;
            return absl::OkStatus();
        }
        if (fds[1].revents != 0 && (at_stop == AtStop::kLeave || fds[0].revents == 0)) return absl::OkStatus();
        const ssize_t n = read(from, buffer, sizeof(buffer));
        // Somebody who shares the stream may have made it non-blocking, and read what was there.
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return absl::OkStatus();
        SK_RETURN_IF_ERROR(take(absl::string_view(buffer, static_cast<size_t>(n))));
    }
}

Status Copy(int from, int to, int stop, AtStop at_stop) {
    return CopyTo(from, stop, at_stop, [to](absl::string_view bytes) { return WriteAll(to, bytes); });
}

bool SameFile(const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_rdev == b.st_rdev;
}

}  // namespace

Status StdioRelay::MakePipe(int stream) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
    const bool input = stream == 0;
    theirs_[stream] = Fd(fds[input ? 0 : 1]);
    ours_[stream] = Fd(fds[input ? 1 : 0]);
    return absl::OkStatus();
}

Status StdioRelay::Prepare() {
    stop_ = Fd(eventfd(0, EFD_CLOEXEC));
    if (!stop_.ok()) return ErrnoStatus(errno, "make an eventfd");
    struct stat st[3];
    for (int stream = 0; stream < 3; ++stream) {
        if (fstat(stream, &st[stream]) != 0) {
            st[stream] = {};
            continue;
        }
        const bool null = S_ISCHR(st[stream].st_mode) && st[stream].st_rdev == makedev(1, 3);
        if ((S_ISFIFO(st[stream].st_mode) || null) && (stream == 0 || limit_bytes_ == 0)) continue;
        // Two pipes would mix up the order in which the lines of a common log were written.
        joined_ = stream == 2 && ours_[1].ok() && SameFile(st[1], st[2]);
        if (!joined_) SK_RETURN_IF_ERROR(MakePipe(stream));
    }
    return absl::OkStatus();
}

int StdioRelay::fd(int stream) const {
    if (stream == 2 && joined_) return theirs_[1].get();
    if (theirs_[stream].ok()) return theirs_[stream].get();
    return fcntl(stream, F_GETFD) < 0 ? -1 : stream;
}

Status StdioRelay::CopyLimited(int stream) {
    Stream& report = streams_[stream];
    Sha256Stream digest;
    const Status status = CopyTo(ours_[stream].get(), stop_.get(), AtStop::kDrain, [&](absl::string_view bytes) {
        const absl::string_view kept = bytes.substr(0, std::min<uint64_t>(bytes.size(), limit_bytes_ - report.bytes));
        report.dropped_bytes += bytes.size() - kept.size();
        if (kept.empty()) return absl::OkStatus();
        SK_RETURN_IF_ERROR(WriteAll(stream, kept));
        report.bytes += kept.size();
        digest.Add(kept);
        return absl::OkStatus();
    });
    report.sha256 = digest.Hex();
    return status;
}

// However it ends, the pipe is closed: who writes on into it is told, and does not wait.
void StdioRelay::Output(int stream) {
    const Status status = limit_bytes_ > 0 ? CopyLimited(stream) : Copy(ours_[stream].get(), stream, stop_.get(), AtStop::kDrain);
    // EPIPE and ECONNRESET: the reader has gone, which is how `| head` ends.
    const bool gone = absl::IsFailedPrecondition(status) || absl::IsUnavailable(status);
    if (!status.ok() && !gone) failed_[stream] = status;
    ours_[stream].Reset();
}

void StdioRelay::Start() {
    started_ = true;
    for (int stream = 0; stream < 3; ++stream) {
        theirs_[stream].Reset();
        if (!ours_[stream].ok()) continue;
        threads_.emplace_back([this, stream] {
            if (stream != 0) return Output(stream);
            (void)Copy(0, ours_[0].get(), stop_.get(), AtStop::kLeave);  // a command that reads no more is its own affair
            ours_[0].Reset();                            // the command sees the end of its input
        });
    }
}

void StdioRelay::Finish() {
    if (!started_) return;
    started_ = false;
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    for (int stream : {1, 2}) {
        if (status_.ok()) {
            status_ =
                Annotate(failed_[stream], absl::StrCat("output of the sandbox is lost: descriptor ", stream));
        }
    }
}

}  // namespace stockade::cmd
