#include "userspace/contract/approval_channels.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"
#include "userspace/contract/refusal.h"

namespace stockade::contract {
namespace {

Status Failed(absl::string_view why) { return Refused("approval.failed", why); }
Status Failed(const Status& status) { return Failed(status.message()); }

Status TooLate(uint64_t timeout_ns) {
    return Refused("approval.timeout", absl::StrCat("no answer within ", timeout_ns / 1'000'000, " ms, which is a deny"));
}

// poll(2) until `deadline_ns` of boot time; 0 when it has come.
int PollUntil(pollfd* fds, nfds_t count, uint64_t deadline_ns) {
    while (true) {
        const uint64_t now = BootNow();
        const int wait_ms = now >= deadline_ns ? 0 : static_cast<int>(std::min<uint64_t>((deadline_ns - now) / 1'000'000 + 1, 3'600'000));
        const int ready = poll(fds, count, wait_ms);
        if (ready > 0 || (ready < 0 && errno != EINTR)) return ready;
        if (ready == 0 && BootNow() >= deadline_ns) return 0;
    }
}

// All that comes until the end of the stream.
StatusOr<std::string> ReadUntilEnd(int fd, uint64_t deadline_ns, uint64_t timeout_ns) {
    std::string text;
    char buffer[4096];
    while (true) {
        pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
        const int ready = PollUntil(&p, 1, deadline_ns);
        if (ready == 0) return TooLate(timeout_ns);
        const ssize_t n = ready < 0 ? -1 : read(fd, buffer, sizeof(buffer));
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) return Failed(ErrnoStatus(errno, "read the answer"));
        if (n == 0) return text;
        text.append(buffer, static_cast<size_t>(n));
        if (text.size() > kMaxAnswerBytes) return Failed("the answer is over 64 KiB");
    }
}

// Writes without waiting longer than the deadline: who hangs does not keep us.
Status WriteUntil(int fd, absl::string_view bytes, uint64_t deadline_ns, uint64_t timeout_ns) {
    while (!bytes.empty()) {
        pollfd p{.fd = fd, .events = POLLOUT, .revents = 0};
        if (PollUntil(&p, 1, deadline_ns) == 0) return TooLate(timeout_ns);
        const ssize_t n = write(fd, bytes.data(), bytes.size());
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) return Failed(ErrnoStatus(errno, "send the request"));
        bytes.remove_prefix(static_cast<size_t>(n));
    }
    return absl::OkStatus();
}

// Whether one of the events that wait is about that name.
bool Names(int watch, absl::string_view name) {
    alignas(inotify_event) char events[4096];
    bool found = false;
    for (ssize_t n; (n = read(watch, events, sizeof(events))) > 0;) {
        for (ssize_t at = 0; at < n;) {
            const auto* event = reinterpret_cast<const inotify_event*>(events + at);
            // Events that the kernel had no room for may have been about it.
            found = found || (event->mask & IN_Q_OVERFLOW) != 0 || (event->len > 0 && name == event->name);
            at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
        }
    }
    return found;
}

// The answer's file when it is there and is one. Nothing yet: kNotFound.
StatusOr<Approval> LookAtFile(const std::string& path, const struct timespec& since, const ApprovalRequest& request) {
    const StatusOr<Fd> file = Fd::Open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (!file.ok()) return absl::IsNotFound(file.status()) ? file.status() : Failed(file.status());
    struct stat info{};
    if (fstat(file->get(), &info) != 0) return Failed(ErrnoStatus(errno, absl::StrCat("look at ", path)));
    // One of before the request is somebody else's, or an earlier call's: the new one takes its place.
    if (std::pair(info.st_ctim.tv_sec, info.st_ctim.tv_nsec) < std::pair(since.tv_sec, since.tv_nsec)) return absl::NotFoundError("an old one");
    if (!S_ISREG(info.st_mode)) return Failed(absl::StrCat(path, " is no regular file"));
    if (info.st_uid != 0 && info.st_uid != geteuid()) return Failed(absl::StrCat(path, " belongs to uid ", info.st_uid, ", who is neither root nor the caller"));
    if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return Failed(absl::StrCat(path, " may be written by others than its owner"));
    const StatusOr<std::string> text = ReadAll(file->get(), kMaxAnswerBytes);
    if (!text.ok()) return Failed(text.status());
    StatusOr<Approval> approval = ReadAnswer(*text, request);
    if (approval.ok()) approval->uid = info.st_uid;
    return approval;
}

}  // namespace

StatusOr<Approval> AskByFile(const std::string& path, const ApprovalRequest& request, uint64_t timeout_ns) {
    const uint64_t deadline_ns = BootNow() + timeout_ns;
    const std::string directory = path.find('/') == std::string::npos ? "." : path.substr(0, path.rfind('/') + 1);
    const Fd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    // Only what is whole: renamed into place, or closed after writing.
    if (!watch.ok() || inotify_add_watch(watch.get(), directory.c_str(), IN_MOVED_TO | IN_CLOSE_WRITE | IN_ONLYDIR) < 0)
        return Failed(ErrnoStatus(errno, absl::StrCat("watch ", directory)));
    const std::string asked = path + ".request";
    if (const Status written = ReplaceFile(asked, request.ToJson() + "\n", 0600); !written.ok()) return Failed(written);
    const auto withdraw = absl::MakeCleanup([&asked] { (void)unlink(asked.c_str()); });  // nobody reads it any more
    struct stat info{};
    if (stat(asked.c_str(), &info) != 0) return Failed(ErrnoStatus(errno, absl::StrCat("look at ", asked)));
    const std::string name = path.substr(path.rfind('/') + 1);  // all of it where there is no slash
    while (true) {
        pollfd p{.fd = watch.get(), .events = POLLIN, .revents = 0};
        if (PollUntil(&p, 1, deadline_ns) == 0) return TooLate(timeout_ns);
        if (!Names(watch.get(), name)) continue;
        const StatusOr<Approval> answer = LookAtFile(path, info.st_ctim, request);
        if (answer.ok() || !absl::IsNotFound(answer.status())) return answer;
    }
}

StatusOr<Approval> AskBySocket(const std::string& path, const ApprovalRequest& request, uint64_t timeout_ns) {
    const uint64_t deadline_ns = BootNow() + timeout_ns;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) return Failed(absl::StrCat("unix:", path, ": the path is too long"));
    std::memcpy(address.sun_path, path.data(), path.size());
    const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.ok()) return Failed(ErrnoStatus(errno, "make a socket"));
    // A full queue of connections is EAGAIN: who does not accept is not waited for.
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
        return Failed(ErrnoStatus(errno, absl::StrCat("connect to ", path)));
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return Failed(ErrnoStatus(errno, "ask who listens"));
    if (peer.uid != 0 && peer.uid != geteuid())
        return Failed(absl::StrCat(path, " is served by uid ", peer.uid, ", who is neither root nor the caller"));
    SK_RETURN_IF_ERROR(WriteUntil(fd.get(), request.ToJson() + "\n", deadline_ns, timeout_ns));
    (void)shutdown(fd.get(), SHUT_WR);
    SK_ASSIGN_OR_RETURN(const std::string text, ReadUntilEnd(fd.get(), deadline_ns, timeout_ns));
    StatusOr<Approval> approval = ReadAnswer(text, request);
    if (approval.ok()) approval->uid = peer.uid;
    return approval;
}

StatusOr<Approval> AskByCommand(const std::string& command, const ApprovalRequest& request, uint64_t timeout_ns) {
    const uint64_t deadline_ns = BootNow() + timeout_ns;
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0) return Failed(ErrnoStatus(errno, "make a pipe"));
    Fd theirs_in(in[0]), ours_in(in[1]);
    if (pipe2(out, O_CLOEXEC) != 0) return Failed(ErrnoStatus(errno, "make a pipe"));
    Fd ours_out(out[0]), theirs_out(out[1]);
    (void)fcntl(ours_in.get(), F_SETFL, O_NONBLOCK);
    const std::string text = request.ToJson() + "\n";
    const pid_t pid = fork();
    if (pid < 0) return Failed(ErrnoStatus(errno, "start the approver"));
    if (pid == 0) {
        // A group of its own, so that all of it can be ended.
        (void)setpgid(0, 0);
        sigset_t none;
        sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, nullptr);
        (void)signal(SIGPIPE, SIG_DFL);
        if (dup2(theirs_in.get(), 0) < 0 || dup2(theirs_out.get(), 1) < 0) _exit(127);
        execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
        _exit(127);
    }
    (void)setpgid(pid, pid);  // whoever is first
    theirs_in.Reset();
    theirs_out.Reset();
    const Status sent = WriteUntil(ours_in.get(), text, deadline_ns, timeout_ns);
    ours_in.Reset();
    StatusOr<std::string> answer = Failed("");
    // One that answers without reading all of it has answered.
    if (RefusalCode(sent) != "approval.timeout") answer = ReadUntilEnd(ours_out.get(), deadline_ns, timeout_ns);
    (void)kill(-pid, SIGKILL);  // what is left of it; it has closed its output, or its time is over
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (RefusalCode(sent) == "approval.timeout") return sent;
    if (!answer.ok()) return answer.status();
    StatusOr<Approval> approval = ReadAnswer(*answer, request);
    if (approval.ok()) approval->uid = geteuid();
    return approval;
}

}  // namespace stockade::contract
