#include "exporters/jsonl/jsonl.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <deque>
#include <mutex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/model/json.h"

namespace stockade::exporters {
namespace {

// A reader that stands still for so long is told as such, and the lines that it did not take
// are dropped; those that follow too, without another wait, until it takes something.
constexpr int kStuckMs = 5000;
constexpr size_t kMaxBufferBytes = 16 << 20;

// Keeps a write to a closed pipe from killing the process: write(2) has no MSG_NOSIGNAL. Blocks
// SIGPIPE for this thread and takes back the one that came meanwhile.
class NoSigpipe {
  public:
    NoSigpipe() {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        sigset_t pending;
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGPIPE) == 1;
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~NoSigpipe() {
        const int error = errno;  // the caller looks at that of its write
        const timespec now{};
        if (!was_pending_) (void)sigtimedwait(&pipe_, nullptr, &now);  // none is the usual case
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }
    NoSigpipe(const NoSigpipe&) = delete;
    NoSigpipe& operator=(const NoSigpipe&) = delete;

  private:
    sigset_t pipe_, before_;
    bool was_pending_;
};

const char* DropReason(int error) {
    switch (error) {
        case EPIPE: return "closed pipe";
        case ENOSPC: return "disk full";
        case EDQUOT: return "quota";
        case EFBIG: return "file too large";
        case EAGAIN: return "reader stuck";
        default: return "write failed";
    }
}

class Jsonl : public Exporter {
  public:
    Jsonl(Fd fd, std::string name, JsonlOptions options)
        : fd_(std::move(fd)), name_(std::move(name)), options_(options) {
        struct stat st {};
        const off_t at = fstat(fd_.get(), &st) == 0 && S_ISREG(st.st_mode)
                             ? lseek(fd_.get(), 0, SEEK_END) : 0;
        if (at > 0) {
            // Half a line that an earlier writer left must not swallow our first one.
            char last = '\n';
            Fd again(open(absl::StrCat("/proc/self/fd/", fd_.get()).c_str(), O_RDONLY | O_CLOEXEC));
            torn_ = again.ok() && pread(again.get(), &last, 1, at - 1) == 1 && last != '\n';
        }
    }
    ~Jsonl() override = default;

    std::string name() const override { return absl::StrCat("jsonl:", name_); }

    Status Export(const v1::Event& event) override {
        {
            std::lock_guard lock(mutex_);
            ++counters_.accepted;
        }
        if (!fd_.ok() || gone_) {
            Drop(1, fd_.ok() ? "closed pipe" : "closed");
            return absl::FailedPreconditionError(absl::StrCat("write to ", name_, ": it is closed"));
        }
        model::AppendJson(event, &buffer_);
        buffer_.push_back('\n');
        ends_.push_back(buffer_.size());
        return buffer_.size() >= options_.buffer_bytes ? Write() : absl::OkStatus();
    }

    Status Flush() override { return buffer_.empty() ? absl::OkStatus() : Write(); }

    Status Close() override {
        Status status = Flush();
        if (fd_.ok()) {
            // close(2) may be the first to tell of a full disk (NFS, quota).
            const int fd = fd_.Release();
            if (close(fd) != 0 && errno != EINTR && status.ok()) {
                status = ErrnoStatus(errno, absl::StrCat("close ", name_));
            }
        }
        return status;
    }

    ExporterCounters counters() const override {
        std::lock_guard lock(mutex_);
        return counters_;
    }

  private:
    // Writes the whole buffer, or drops its lines: what does not go now does not stay, so that
    // a full disk costs no memory.
    Status Write() {
        int error = 0;
        if (torn_ && !HealTornLine(&error)) return Finish(0, error);
        size_t done = 0;
        while (done < buffer_.size()) {
            const ssize_t wrote = WriteSome(buffer_.data() + done, buffer_.size() - done);
            if (wrote >= 0) {
                done += static_cast<size_t>(wrote);
                stuck_ = false;
            } else if (errno == EAGAIN) {
                if (!WaitWritable()) return Finish(done, EAGAIN);
            } else if (errno != EINTR) {
                return Finish(done, errno);
            }
        }
        return Finish(done, 0);
    }

    ssize_t WriteSome(const char* data, size_t size) {
        const NoSigpipe guard;
        return write(fd_.get(), data, size);
    }

    // After a line that went out in part: ends it, so that the next one is whole.
    bool HealTornLine(int* error) {
        if (WriteSome("\n", 1) == 1) {
            torn_ = false;
            return true;
        }
        *error = errno;
        return false;
    }

    bool WaitWritable() {
        pollfd poller{fd_.get(), POLLOUT, 0};
        stuck_ = poll(&poller, 1, stuck_ ? 0 : kStuckMs) != 1;
        return !stuck_;
    }

    Status Finish(size_t done, int error) {
        size_t lines = 0;
        size_t whole = 0;
        while (lines < ends_.size() && ends_[lines] <= done) whole = ends_[lines++];
        const size_t lost = ends_.size() - lines;
        if (done > whole) torn_ = true;
        {
            std::lock_guard lock(mutex_);
            counters_.delivered += lines;
            counters_.bytes += whole;
        }
        buffer_.clear();
        ends_.clear();
        if (error == 0) return absl::OkStatus();
        Drop(lost, DropReason(error));
        const Status status = ErrnoStatus(error, absl::StrCat("write ", lost, " events to ", name_));
        if (error != EPIPE) return absl::UnavailableError(status.message());
        gone_ = true;
        return absl::FailedPreconditionError(status.message());
    }

    void Drop(uint64_t count, const char* reason) {
        std::lock_guard lock(mutex_);
        counters_.dropped[reason] += count;
    }

    Fd fd_;
    const std::string name_;
    const JsonlOptions options_;
    std::string buffer_;
    std::deque<size_t> ends_;  // of each line in buffer_
    bool torn_ = false;        // the last line in the file has no end
    bool gone_ = false;
    bool stuck_ = false;       // the reader took nothing when we last waited for it
    mutable std::mutex mutex_;
    ExporterCounters counters_;
};

}  // namespace

std::unique_ptr<Exporter> MakeJsonlFd(Fd fd, std::string name, JsonlOptions options) {
    return std::make_unique<Jsonl>(std::move(fd), std::move(name), options);
}

StatusOr<std::unique_ptr<Exporter>> MakeJsonl(const ExporterOptions& options) {
    JsonlOptions jsonl;
    std::string path;
    for (const auto& [key, value] : options) {
        if (key == "path") {
            path = value;
        } else if (key == "buffer_bytes") {
            if (!absl::SimpleAtoi(value, &jsonl.buffer_bytes) ||
                jsonl.buffer_bytes > kMaxBufferBytes) {
                return absl::InvalidArgumentError(
                    absl::StrCat("exporter jsonl: buffer_bytes must be 0..", kMaxBufferBytes,
                                 ", not \"", value, "\""));
            }
        } else {
            return absl::InvalidArgumentError(absl::StrCat(
                "exporter jsonl: no option \"", key, "\"; there are path and buffer_bytes"));
        }
    }
    if (path.empty()) return absl::InvalidArgumentError("exporter jsonl: path is missing");
    if (path == "-") {
        SK_ASSIGN_OR_RETURN(Fd out, Fd::Dup(STDOUT_FILENO));
        return MakeJsonlFd(std::move(out), "standard output", jsonl);
    }
    // Non-blocking: a FIFO without a reader is an error now and not an agent that hangs.
    SK_ASSIGN_OR_RETURN(
        Fd out, Fd::Open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_NONBLOCK, 0600));
    return MakeJsonlFd(std::move(out), path, jsonl);
}

}  // namespace stockade::exporters
