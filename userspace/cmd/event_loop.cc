#include "userspace/cmd/event_loop.h"

#include <sys/epoll.h>

#include <array>

#include "userspace/base/clock.h"
#include "userspace/base/errno.h"

namespace stockade::cmd {

StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
    Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll.ok()) return ErrnoStatus(errno, "make an epoll descriptor");
    return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll)));
}

Status EventLoop::Watch(int fd, uint32_t events, Fn fn) {
    const uint64_t token = next_token_++;
    epoll_event event{.events = events, .data = {.u64 = token}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
        return ErrnoStatus(errno, "watch a descriptor");
    }
    auto shared = std::make_shared<Fn>(std::move(fn));
    entries_[fd] = {.token = token, .fn = shared};
    by_token_[token] = shared;
    return absl::OkStatus();
}

Status EventLoop::Change(int fd, uint32_t events) {
    const auto it = entries_.find(fd);
    if (it == entries_.end()) return absl::NotFoundError("descriptor is not watched");
    epoll_event event{.events = events, .data = {.u64 = it->second.token}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
        return ErrnoStatus(errno, "watch a descriptor for other events");
    }
    return absl::OkStatus();
}

void EventLoop::Forget(int fd) {
    const auto it = entries_.find(fd);
    if (it == entries_.end()) return;
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);  // ENOENT when it is closed
    by_token_.erase(it->second.token);
    entries_.erase(it);
}

void EventLoop::Every(int interval_ms, std::function<void()> fn) {
    interval_ms_ = interval_ms;
    tick_ = std::move(fn);
}

Status EventLoop::Run() {
    std::array<epoll_event, 64> events;
    uint64_t last_tick = BootNow();
    while (!stop_) {
        const int count = epoll_wait(epoll_.get(), events.data(), events.size(), interval_ms_);
        if (count < 0 && errno != EINTR) return ErrnoStatus(errno, "wait for events");
        for (int i = 0; i < count && !stop_; ++i) {
            const auto it = by_token_.find(events[i].data.u64);
            if (it == by_token_.end()) continue;  // forgotten by an earlier function
            const std::shared_ptr<Fn> fn = it->second;
            (*fn)(events[i].events);
        }
        const uint64_t now = BootNow();
        if (tick_ && now - last_tick >= static_cast<uint64_t>(interval_ms_) * 1'000'000) {
            last_tick = now;
            tick_();
        }
    }
    return absl::OkStatus();
}

}  // namespace stockade::cmd
