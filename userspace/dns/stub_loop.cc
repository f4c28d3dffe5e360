#include "userspace/dns/stub_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "userspace/base/clock.h"
#include "userspace/base/errno.h"

namespace stockade::dns {
namespace {

constexpr uint64_t kMsNs = 1'000'000;
constexpr uint64_t kWakeToken = 0;

}  // namespace

StatusOr<std::unique_ptr<StubLoop>> StubLoop::Create() {
    Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll.ok()) return ErrnoStatus(errno, "make an epoll descriptor");
    Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake.ok()) return ErrnoStatus(errno, "make an eventfd");
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeToken}};
    if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0)
        return ErrnoStatus(errno, "watch an eventfd");
    return std::unique_ptr<StubLoop>(new StubLoop(std::move(epoll), std::move(wake)));
}

Status StubLoop::Watch(int fd, uint32_t events, Fn fn) {
    const uint64_t token = next_++;
    epoll_event event{.events = events, .data = {.u64 = token}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        return ErrnoStatus(errno, "watch a descriptor");
    functions_[token] = std::make_shared<Fn>(std::move(fn));
    tokens_[fd] = token;
    return absl::OkStatus();
}

void StubLoop::Change(int fd, uint32_t events) {
    const auto it = tokens_.find(fd);
    if (it == tokens_.end()) return;
    epoll_event event{.events = events, .data = {.u64 = it->second}};
    // Fails for a descriptor that is not there only, and this one is.
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void StubLoop::Forget(int fd) {
    const auto it = tokens_.find(fd);
    if (it == tokens_.end()) return;
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);  // as above
    functions_.erase(it->second);
    tokens_.erase(it);
}

StubLoop::Timer StubLoop::After(uint32_t ms, std::function<void()> fn) {
    const Timer timer(BootNow() + ms * kMsNs, next_++);
    timers_.emplace(timer, std::move(fn));
    return timer;
}

void StubLoop::Cancel(Timer* timer) {
    timers_.erase(*timer);
    *timer = {};
}

void StubLoop::Call(const std::function<void()>& fn) {
    Request request{.fn = &fn};
    std::unique_lock lock(mutex_);
    if (ended_) return fn();
    requests_.push_back(&request);
    Wake();
    done_.wait(lock, [&] { return request.done; });
}

void StubLoop::Stop() {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    Wake();
}

void StubLoop::Wake() {
    const uint64_t one = 1;
    // Fails only when it is full, and then the loop wakes anyway.
    (void)!write(wake_.get(), &one, sizeof(one));
}

int StubLoop::WaitMs() const {
    if (timers_.empty()) return -1;
    const uint64_t now = BootNow(), due = timers_.begin()->first.first;
    if (due <= now) return 0;
    return static_cast<int>(std::min<uint64_t>((due - now + kMsNs - 1) / kMsNs, 60'000));
}

void StubLoop::RunCalls() {
    uint64_t count;
    (void)!read(wake_.get(), &count,
                sizeof(count));  // EAGAIN: somebody else's wake was read with an earlier one
    std::unique_lock lock(mutex_);
    while (!requests_.empty()) {
        Request* request = requests_.front();
        requests_.pop_front();
        lock.unlock();
        (*request->fn)();
        RunDeferred();
        lock.lock();
        request->done = true;
        done_.notify_all();
    }
}

void StubLoop::RunTimers() {
    const uint64_t now = BootNow();
    while (!timers_.empty() && timers_.begin()->first.first <= now) {
        auto node = timers_.extract(timers_.begin());
        node.mapped()();
        RunDeferred();
    }
}

void StubLoop::RunDeferred() {
    while (!deferred_.empty()) {
        const std::vector<std::function<void()>> now = std::move(deferred_);
        deferred_.clear();
        for (const auto& fn : now) fn();
    }
}

void StubLoop::Run() {
    std::array<epoll_event, 64> events;
    bool stop = false;
    while (!stop) {
        const int count = epoll_wait(epoll_.get(), events.data(), events.size(), WaitMs());
        if (count < 0 && errno != EINTR) break;  // only a bug of ours: the calls below still end
        for (int i = 0; i < count; ++i) {
            if (events[i].data.u64 == kWakeToken) continue;
            const auto it = functions_.find(events[i].data.u64);
            if (it == functions_.end()) continue;  // forgotten by an earlier function
            const std::shared_ptr<Fn> fn = it->second;
            (*fn)(events[i].events);
            RunDeferred();
        }
        RunTimers();
        RunCalls();
        const std::lock_guard lock(mutex_);
        stop = stop_;
    }
    const std::lock_guard lock(mutex_);
    ended_ = true;
    for (Request* request : requests_) {
        (*request->fn)();
        request->done = true;
    }
    requests_.clear();
    done_.notify_all();
}

}  // namespace stockade::dns
