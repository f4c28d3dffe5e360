#include "userspace/cmd/stdio_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "userspace/base/errno.h"

namespace stockade::cmd {
namespace {

constexpr size_t kChunkBytes = 16384;

// Until `from` ends, `to` breaks, or `stop` is readable.
void Copy(int from, int to, int stop) {
    char buffer[kChunkBytes];
    while (true) {
        pollfd fds[] = {{.fd = from, .events = POLLIN, .revents = 0},
                        {.fd = stop, .events = POLLIN, .revents = 0}};
        if (poll(fds, stop >= 0 ? 2 : 1, -1) < 0) {
            if (errno == EINTR) continue;
            return;
        }
        if (fds[1].revents != 0) return;
        const ssize_t n = read(from, buffer, sizeof(buffer));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0 || !WriteAll(to, absl::string_view(buffer, static_cast<size_t>(n))).ok()) return;
    }
}

}  // namespace

Status StdioRelay::Prepare() {
    stop_ = Fd(eventfd(0, EFD_CLOEXEC));
    if (!stop_.ok()) return ErrnoStatus(errno, "make an eventfd");
    for (int stream = 0; stream < 3; ++stream) {
        if (!isatty(stream)) continue;
        int fds[2];
        if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
        const bool input = stream == 0;
        theirs_[stream] = Fd(fds[input ? 0 : 1]);
        ours_[stream] = Fd(fds[input ? 1 : 0]);
    }
    return absl::OkStatus();
}

int StdioRelay::fd(int stream) const {
    if (theirs_[stream].ok()) return theirs_[stream].get();
    return fcntl(stream, F_GETFD) < 0 ? -1 : stream;
}

void StdioRelay::Start() {
    started_ = true;
    for (int stream = 0; stream < 3; ++stream) {
        theirs_[stream].Reset();
        if (!ours_[stream].ok()) continue;
        threads_.emplace_back([this, stream] {
            if (stream == 0) {
                Copy(0, ours_[0].get(), stop_.get());
                ours_[0].Reset();  // the command sees the end of its input
            } else {
                Copy(ours_[stream].get(), stream, -1);
            }
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
}

}  // namespace stockade::cmd
