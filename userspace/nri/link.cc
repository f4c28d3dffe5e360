#include "userspace/nri/link.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"

namespace stockade::nri {
namespace {

constexpr size_t kReadBytes = 64 << 10;
// So many calls may wait for the agent. Beyond it they are refused by their deadline, and ends are seen by the container's cgroup.
constexpr size_t kMaxCalls = 4096;
// At the end of a connection: what is written in this time refuses; the rest the runtime does without us.
constexpr int kLastWordsMs = 50;

Status Overdue() {
    return absl::FailedPreconditionError("the agent did not answer in time: refused rather than let through");
}

void Notify(int fd) {
    const uint64_t one = 1;
    (void)!write(fd, &one, sizeof(one));  // full only when it is readable anyway
}

void Clear(int fd) {
    uint64_t count = 0;
    (void)!read(fd, &count, sizeof(count));  // nothing there is as good
}

StatusOr<Fd> Connect(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) return absl::InvalidArgumentError(absl::StrCat(path, ": too long for a socket"));
    std::memcpy(address.sun_path, path.data(), path.size());
    Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.ok()) return ErrnoStatus(errno, "make a socket");
    // A stream socket of a full backlog says EAGAIN: tried again like one that is not there.
    if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
        return ErrnoStatus(errno, absl::StrCat("connect to the runtime's NRI socket ", path));
    return fd;
}

}  // namespace

StatusOr<std::unique_ptr<Link>> Link::Start(Options options) {
    auto link = std::unique_ptr<Link>(new Link(std::move(options)));
    link->told_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    link->woken_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!link->told_.ok() || !link->woken_.ok()) return ErrnoStatus(errno, "make an eventfd");
    link->thread_ = std::thread([raw = link.get()] { raw->Work(); });
    return link;
}

Link::~Link() {
    stop_ = true;
    Notify(woken_.get());
    if (thread_.joinable()) thread_.join();
}

void Link::Wake() { Notify(told_.get()); }

std::vector<Call> Link::TakeCalls() {
    Clear(told_.get());
    std::lock_guard lock(mutex_);
    std::vector<Call> out(std::make_move_iterator(calls_.begin()), std::make_move_iterator(calls_.end()));
    calls_.clear();
    return out;
}

Link::Told Link::Answer(uint64_t id, const Status& status) {
    std::lock_guard lock(mutex_);
    const auto found = due_.find(id);
    if (found == due_.end()) return Told::kGone;
    Due due = std::move(found->second);
    due_.erase(found);
    if (due.refused) return Told::kRefused;
    const bool overdue = BootNow() >= due.deadline_ns;
    counters_.overdue_calls += overdue;
    // From here on it is the thread's, which writes it before it looks at deadlines again.
    answers_.emplace_back(std::move(due), overdue ? Overdue() : status);
    Notify(woken_.get());
    return overdue ? Told::kRefused : Told::kYes;
}

Link::State Link::state() const {
    std::lock_guard lock(mutex_);
    return state_;
}

Link::Counters Link::counters() const {
    std::lock_guard lock(mutex_);
    Counters out = counters_;
    out.session.Add(current_);
    return out;
}

void Link::Work() {
    while (!stop_) {
        const Status status = Serve();
        SetTrouble(status);
        pollfd wait = {woken_.get(), POLLIN, 0};
        const bool absent = absl::IsNotFound(status) || absl::IsUnavailable(status);
        const uint64_t pause_ns = absent ? options_.retry_ns : options_.refused_retry_ns;
        if (!stop_) (void)poll(&wait, 1, static_cast<int>(pause_ns / 1'000'000));
        Clear(woken_.get());
    }
}

void Link::SetTrouble(const Status& status) {
    std::lock_guard lock(mutex_);
    if (state_.up) state_.since_ns = BootNow();
    state_.up = false;
    state_.trouble = std::string(status.message());
}

Status Link::Serve() {
    const StatusOr<Fd> fd = Connect(options_.socket);
    // Not there yet, or nobody listens there any more: both end by themselves.
    if (!fd.ok()) return absl::UnavailableError(fd.status().message());
    Session session(options_.session);
    std::string output;
    const uint64_t handshake_deadline_ns = BootNow() + options_.handshake_ns;
    Status status;
    while (status.ok() && !stop_) {
        TakeAnswers(session);
        RefuseOverdue(session);
        output += session.TakeOutput();
        status = WriteSome(fd->get(), &output);
        if (!status.ok()) break;
        if (output.empty()) unwritten_.clear();
        if (!session.synchronized() && BootNow() >= handshake_deadline_ns) {
            status = absl::DeadlineExceededError("the runtime did not configure the plugin in time");
            break;
        }
        pollfd wait[2] = {{fd->get(), static_cast<short>(output.empty() ? POLLIN : POLLIN | POLLOUT), 0},
                          {woken_.get(), POLLIN, 0}};
        if (poll(wait, 2, WaitMs(session.synchronized() ? 0 : handshake_deadline_ns)) < 0 && errno != EINTR) {
            status = ErrnoStatus(errno, "wait for the runtime");
            break;
        }
        if (wait[1].revents != 0) Clear(woken_.get());
        if (wait[0].revents & (POLLIN | POLLHUP | POLLERR)) status = ReadSome(fd->get(), session);
        HandOn(session);
        if (output.size() > kMaxOutputBytes) status = absl::ResourceExhaustedError("the runtime takes no answers");
    }
    End(session, fd->get(), status, &output);
    return status.ok() ? absl::UnavailableError("the agent leaves") : status;
}

Status Link::ReadSome(int fd, Session& session) {
    char buffer[kReadBytes];
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return absl::OkStatus();
    if (n < 0) return ErrnoStatus(errno, "read from the runtime");
    // It was restarted, or has dropped us.
    if (n == 0) return absl::UnavailableError("the runtime closed the connection");
    return session.Feed({buffer, static_cast<size_t>(n)});
}

Status Link::WriteSome(int fd, std::string* output) {
    while (!output->empty()) {
        const ssize_t n = send(fd, output->data(), output->size(), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return absl::OkStatus();
        if (n < 0) return absl::UnavailableError(ErrnoStatus(errno, "write to the runtime").message());
        output->erase(0, static_cast<size_t>(n));
    }
    return absl::OkStatus();
}

void Link::HandOn(Session& session) {
    std::vector<Call> calls = session.TakeCalls();
    std::lock_guard lock(mutex_);
    current_ = session.counters();
    if (session.synchronized() && !state_.up) {
        state_ = {.up = true, .runtime = session.runtime(), .since_ns = BootNow()};
        ++counters_.connections;
    }
    if (calls.empty()) return;
    uint64_t patience_ns = options_.answer_ns;
    if (session.request_timeout_ms() > 0)
        patience_ns = std::min(patience_ns, static_cast<uint64_t>(session.request_timeout_ms()) * 750'000);
    const uint64_t now = BootNow();
    for (Call& call : calls) {
        // Nothing depends on the agent's word there, and the runtime need not wait for it.
        if (call.kind == CallKind::kStop || call.kind == CallKind::kRemove) session.Answer(std::exchange(call.id, 0), absl::OkStatus());
        if (call.id != 0) {
            const uint64_t id = next_id_++;
            due_[id] = {.session_id = call.id, .deadline_ns = now + patience_ns, .container_id = call.container.id()};
            call.id = id;
        }
        if ((calls_.size() >= kMaxCalls || due_.size() > kMaxCalls) && call.kind != CallKind::kSynchronized) {
            ++counters_.dropped_calls;
            if (call.id != 0 && due_.size() > kMaxCalls) session.Answer(due_.extract(call.id).mapped().session_id, Overdue());
            continue;
        }
        calls_.push_back(std::move(call));
    }
    Notify(told_.get());
}

void Link::TakeAnswers(Session& session) {
    std::vector<std::pair<Due, Status>> answers;
    {
        std::lock_guard lock(mutex_);
        answers.swap(answers_);
    }
    for (const auto& [due, status] : answers) {
        session.Answer(due.session_id, status);
        if (status.ok()) unwritten_.push_back(due.container_id);
    }
}

void Link::RefuseOverdue(Session& session) {
    std::vector<uint64_t> overdue;
    {
        std::lock_guard lock(mutex_);
        const uint64_t now = BootNow();
        for (auto& [id, due] : due_) {
            if (due.refused || due.deadline_ns > now) continue;
            overdue.push_back(due.session_id);
            due.refused = true;  // kept until the agent is told
            ++counters_.overdue_calls;
        }
    }
    for (const uint64_t id : overdue) session.Answer(id, Overdue());
}

int Link::WaitMs(uint64_t handshake_deadline_ns) const {
    std::lock_guard lock(mutex_);
    uint64_t next = handshake_deadline_ns == 0 ? UINT64_MAX : handshake_deadline_ns;
    for (const auto& [id, due] : due_) {
        if (!due.refused) next = std::min(next, due.deadline_ns);
    }
    if (next == UINT64_MAX) return -1;
    const uint64_t now = BootNow();
    return next <= now ? 0 : static_cast<int>(std::min<uint64_t>((next - now) / 1'000'000 + 1, 60'000));
}

void Link::End(Session& session, int fd, const Status& why, std::string* output) {
    TakeAnswers(session);
    session.RefuseWaiting(absl::FailedPreconditionError(absl::StrCat("the plugin's connection ends: ", why.message())));
    *output += session.TakeOutput();
    pollfd wait = {fd, POLLOUT, 0};
    if (!output->empty() && WriteSome(fd, output).ok() && !output->empty() && poll(&wait, 1, kLastWordsMs) == 1)
        (void)WriteSome(fd, output);  // what does not go out now the runtime does without us
    if (output->empty()) unwritten_.clear();
    std::lock_guard lock(mutex_);
    for (const std::string& container : std::exchange(unwritten_, {})) {
        Call call{.kind = CallKind::kUnheard};
        call.container.set_id(container);
        calls_.push_back(std::move(call));
        Notify(told_.get());
    }
    counters_.session.Add(session.counters());
    current_ = {};
    ++(session.synchronized() ? counters_.lost_connections : counters_.failed_handshakes);
    due_.clear();
    answers_.clear();
}

}  // namespace stockade::nri
