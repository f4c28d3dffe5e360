#include "userspace/guest/driver_loop.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"

namespace stockade::guest {
namespace {

// Of each descriptor in one turn, so that none keeps the others waiting.
constexpr size_t kChunkBytes = 64 << 10;
// No more is read from the guest's stdio while so much waits for the caller.
constexpr size_t kMaxWaitingBytes = 256 << 10;
// A pipe that poll(2) calls writable takes so much without blocking, whatever flags its other users left it.
constexpr size_t kSafeWriteBytes = 4096;
// Chunks of what an ended QEMU left behind: a socket holds fewer. One that could not be ended has no more of them either.
constexpr int kMaxLastReads = 64;

// Where each descriptor stands among the polls; the ports come first.
enum Slot : size_t {
    kConsole = kPorts,
    kErrors,
    kQemu,
    kCancel,
    kStdinSlot,
    kStdoutSlot,
    kStderrSlot,
    kSlots
};

uint64_t After(int ms) { return BootNow() + static_cast<uint64_t>(ms) * 1'000'000; }

// Reads once without waiting. 0 at the end, -1 when there is nothing now.
ssize_t ReadNow(int fd, bool socket, std::string* out) {
    out->resize(kChunkBytes);
    ssize_t n;
    do {
        n = socket ? recv(fd, out->data(), out->size(), MSG_DONTWAIT) : read(fd, out->data(), out->size());
    } while (n < 0 && errno == EINTR);
    // ECONNRESET: QEMU ended with bytes of ours unread.
    if (n < 0 && errno != EAGAIN) n = 0;
    out->resize(n > 0 ? static_cast<size_t>(n) : 0);
    return n;
}

}  // namespace

void Tail::Add(absl::string_view bytes) {
    text_.append(bytes.data(), bytes.size());
    if (text_.size() > 2 * most_) text_.erase(0, text_.size() - most_);
}

Status DriverLoop::Records(absl::string_view bytes) {
    result_.records_bytes += bytes.size();
    if (spec_.records) spec_.records(bytes);
    return absl::OkStatus();
}

Status DriverLoop::Keep(Output* output, absl::string_view bytes) {
    output->bytes += bytes.size();
    if (output->fd >= 0) output->waiting.append(bytes.data(), bytes.size());
    return absl::OkStatus();
}

void DriverLoop::Write(Output* output) {
    const size_t size = std::min(output->waiting.size(), kSafeWriteBytes);
    const ssize_t n = write(output->fd, output->waiting.data(), size);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n < 0) {
        // Nobody reads it any more: the guest goes on, its bytes are counted and thrown away.
        output->fd = -1;
        output->waiting.clear();
        return;
    }
    output->waiting.erase(0, static_cast<size_t>(n));
}

void DriverLoop::Stop(GuestState state, std::string reason) {
    if (stopped_) return;
    stopped_ = true;
    result_.state = state;
    result_.reason = std::move(reason);
}

std::string DriverLoop::Where() const {
    switch (stage_) {
        case Stage::kBooting:
            return absl::StrCat("before it said hello (", talk_.PortsWithoutHello(), ")");
        case Stage::kReady:
        case Stage::kStarting:
            return "before the command ran";
        case Stage::kRunning:
            return "while the command ran";
        case Stage::kEnding:
        case Stage::kComplete:
            return absl::StrCat("before all was told (", talk_.PortsWithoutEnd(), ")");
    }
    return "?";
}

void DriverLoop::StopLost() {
    for (int i = 0; i < kMaxLastReads && ReadTails(); ++i) {
    }
    const bool panic = absl::StrContains(console_.text(), "Kernel panic");
    Stop(GuestState::kLost,
         absl::StrCat("the guest ended ", Where(), panic ? "; its console tells of a kernel panic" : ""));
}

void DriverLoop::EnterStage(Stage stage) {
    stage_ = stage;
    const GuestTimeouts& timeouts = spec_.timeouts;
    switch (stage) {
        case Stage::kBooting:
            deadline_ns_ = After(timeouts.boot_ms);
            break;
        case Stage::kReady:
            result_.ready_ns = BootNow();
            deadline_ns_ = After(timeouts.start_ms);
            break;
        case Stage::kStarting:
            break;  // on the time of kReady
        case Stage::kRunning:
            result_.started_ns = BootNow();
            deadline_ns_ = timeouts.run_ms > 0 ? After(timeouts.run_ms) : 0;
            break;
        case Stage::kEnding:
            result_.exited_ns = BootNow();
            deadline_ns_ = After(timeouts.end_ms);
            break;
        case Stage::kComplete:
            result_.complete_ns = BootNow();
            deadline_ns_ = After(timeouts.power_off_ms);
            break;
    }
}

// As far as what has been said allows. Each stage is entered once, also those that one read went through.
void DriverLoop::Advance() {
    while (talk_.stage() != stage_) {
        // kFailed goes from kStarting to kEnding: there was no running.
        const Stage now = talk_.stage();
        const bool never_ran = talk_.failed().has_value() && stage_ == Stage::kStarting;
        EnterStage(never_ran ? Stage::kEnding : static_cast<Stage>(static_cast<int>(stage_) + 1));
        if (stage_ == Stage::kReady && now == Stage::kReady && !stopped_) {
            auto run = encode_run_();
            if (!run.ok()) return Stop(GuestState::kProtocol, std::string(run.status().message()));
            to_guest_[static_cast<size_t>(Port::kControl)] += *run;
            talk_.RunSent();
        }
    }
    if (stopped_ || stage_ != Stage::kComplete || acked_) return;
    // The caller has the command's output when the guest is let go, or has left it.
    if (!stdout_.waiting.empty() || !stderr_.waiting.empty()) return;
    acked_ = true;
    to_guest_[static_cast<size_t>(Port::kControl)] += EncodeFrame(Kind::kAck, "");
}

void DriverLoop::ReadPort(size_t port) {
    std::string bytes;
    const ssize_t n = ReadNow(ends_.ports[port].get(), true, &bytes);
    if (n < 0) return;
    if (n == 0) {
        ends_.ports[port].Reset();
        return;
    }
    const Status status = talk_.Take(static_cast<Port>(port), bytes);
    if (!status.ok()) Stop(GuestState::kProtocol, std::string(status.message()));
}

// Once each: a guest that floods its console gets one chunk a turn, as the others. False when there was nothing.
bool DriverLoop::ReadTails() {
    std::string bytes;
    bool some = false;
    if (ends_.console.ok() && ReadNow(ends_.console.get(), true, &bytes) > 0) {
        console_.Add(bytes);
        some = true;
    }
    if (ReadNow(qemu_.errors.get(), false, &bytes) > 0) {
        errors_.Add(bytes);
        some = true;
    }
    return some;
}

void DriverLoop::ReadStdin() {
    std::string& waiting = to_guest_[static_cast<size_t>(Port::kStdio)];
    std::string bytes(kChunkBytes, '\0');
    const ssize_t n = read(spec_.stdin_fd, bytes.data(), bytes.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    // An error ends it as its end does: the command must not wait for what cannot come.
    stdin_done_ = n <= 0;
    waiting += stdin_done_
                   ? EncodeFrame(Kind::kStdinEnd, "")
                   : EncodeFrame(Kind::kStdin, absl::string_view(bytes.data(), static_cast<size_t>(n)));
}

void DriverLoop::SendWaiting(size_t port) {
    std::string& waiting = to_guest_[port];
    const ssize_t n =
        send(ends_.ports[port].get(), waiting.data(), waiting.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) waiting.erase(0, static_cast<size_t>(n));
    // What cannot be sent any more: the port's end is seen by reading.
    if (n < 0 && errno != EAGAIN && errno != EINTR) waiting.clear();
}

void DriverLoop::FillPolls() {
    polls_.assign(kSlots, pollfd{-1, POLLIN, 0});
    const bool caller_is_behind = std::max(stdout_.waiting.size(), stderr_.waiting.size()) > kMaxWaitingBytes;
    for (size_t i = 0; i < kPorts; ++i) {
        const bool held = i == static_cast<size_t>(Port::kStdio) && caller_is_behind;
        polls_[i].fd = ends_.ports[i].get();
        polls_[i].events = static_cast<short>((held ? 0 : POLLIN) | (to_guest_[i].empty() ? 0 : POLLOUT));
        // A hang-up would be told again and again while its bytes are not to be read.
        if (polls_[i].events == 0) polls_[i].fd = -1;
    }
    polls_[kConsole].fd = ends_.console.get();
    polls_[kErrors].fd = qemu_ended_ ? -1 : qemu_.errors.get();
    polls_[kQemu].fd = qemu_ended_ ? -1 : qemu_.pidfd.get();
    polls_[kCancel].fd = spec_.cancel_fd;
    const bool wants_stdin =
        stage_ == Stage::kRunning && !stdin_done_ && to_guest_[static_cast<size_t>(Port::kStdio)].empty();
    polls_[kStdinSlot].fd = wants_stdin ? spec_.stdin_fd : -1;
    polls_[kStdoutSlot] = pollfd{stdout_.waiting.empty() ? -1 : stdout_.fd, POLLOUT, 0};
    polls_[kStderrSlot] = pollfd{stderr_.waiting.empty() ? -1 : stderr_.fd, POLLOUT, 0};
}

// 0 = now over.
int DriverLoop::TimeLeftMs() {
    if (deadline_ns_ == 0) return -1;
    const uint64_t now = BootNow();
    return now >= deadline_ns_
               ? 0
               : static_cast<int>(std::min<uint64_t>((deadline_ns_ - now) / 1'000'000 + 1, 1u << 30));
}

// False when it is over.
bool DriverLoop::Turn() {
    FillPolls();
    const int left_ms = TimeLeftMs();
    if (poll(polls_.data(), polls_.size(), left_ms) < 0 && errno != EINTR) {
        Stop(GuestState::kLost, std::string(ErrnoStatus(errno, "poll").message()));
        return false;
    }
    if (polls_[kCancel].revents != 0)
        Stop(GuestState::kCancelled, absl::StrCat("ended by the host ", Where()));
    for (size_t i = 0; i < kPorts && !stopped_; ++i) {
        if ((polls_[i].revents & POLLOUT) != 0) SendWaiting(i);
        if ((polls_[i].revents & ~POLLOUT) != 0) ReadPort(i);
    }
    if (polls_[kConsole].revents != 0 || polls_[kErrors].revents != 0) {
        ReadTails();
        if ((polls_[kConsole].revents & (POLLHUP | POLLERR)) != 0 && (polls_[kConsole].revents & POLLIN) == 0)
            ends_.console.Reset();
    }
    if (polls_[kStdinSlot].revents != 0) ReadStdin();
    if (polls_[kStdoutSlot].revents != 0) Write(&stdout_);
    if (polls_[kStderrSlot].revents != 0) Write(&stderr_);
    if (polls_[kQemu].revents != 0) qemu_ended_ = true;
    Advance();
    if (stopped_) return false;
    const bool told = stage_ == Stage::kComplete && acked_;
    if (told && (qemu_ended_ || left_ms == 0)) return false;
    // After QEMU's end its last bytes are still in the sockets.
    const bool silent =
        std::none_of(ends_.ports.begin(), ends_.ports.end(), [](const Fd& fd) { return fd.ok(); });
    if (!told && silent && qemu_ended_ && stdout_.waiting.empty() && stderr_.waiting.empty()) StopLost();
    if (!stopped_ && left_ms == 0) Stop(GuestState::kTimedOut, absl::StrCat("the time was over ", Where()));
    return !stopped_;
}

GuestResult DriverLoop::Run() {
    stdout_.fd = spec_.stdout_fd;
    stderr_.fd = spec_.stderr_fd;
    if (spec_.stdin_fd < 0) {
        stdin_done_ = true;
        to_guest_[static_cast<size_t>(Port::kStdio)] = EncodeFrame(Kind::kStdinEnd, "");
    }
    EnterStage(Stage::kBooting);
    while (Turn()) {
    }
    if (!stopped_ && talk_.failed().has_value()) {
        result_.error = talk_.failed()->error();
        Stop(GuestState::kNotStarted, talk_.failed()->step());
    }
    Stop(GuestState::kCompleted, "");  // no effect where it was stopped before
    result_.stage = stage_;
    result_.exited = talk_.exited();
    result_.kernel = talk_.kernel();
    result_.out = store_.report();
    result_.stdout_bytes = stdout_.bytes;
    result_.stderr_bytes = stderr_.bytes;
    return std::move(result_);
}

void DriverLoop::TakeLastWords(GuestResult* result) {
    for (int i = 0; i < kMaxLastReads && ReadTails(); ++i) {
    }
    result->console_tail = console_.text();
    result->qemu_errors = errors_.text();
    // QEMU's own words where it never came to a guest.
    if (result->state == GuestState::kLost && result->stage == Stage::kBooting &&
        !result->qemu_errors.empty()) {
        absl::StrAppend(&result->reason,
                        "; QEMU: ", result->qemu_errors.substr(0, result->qemu_errors.find('\n')));
    }
}

}  // namespace stockade::guest
