// epoll with a function for each descriptor.
//
//   SK_ASSIGN_OR_RETURN(auto loop, EventLoop::Create());
//   loop->Watch(fd, EPOLLIN, [&](uint32_t events) { ... });
//   loop->Run();          // until Stop()
//
// One thread. A function may Watch, Change and Forget any descriptor, its own included.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::cmd {

class EventLoop {
  public:
    using Fn = std::function<void(uint32_t events)>;

    static StatusOr<std::unique_ptr<EventLoop>> Create();

    // `fd` is borrowed until Forget.
    Status Watch(int fd, uint32_t events, Fn fn);
    Status Change(int fd, uint32_t events);
    void Forget(int fd);
    // Called about every `interval_ms` from Run, between two descriptors.
    void Every(int interval_ms, std::function<void()> fn);
    Status Run();
    void Stop() { stop_ = true; }

  private:
    explicit EventLoop(Fd epoll) : epoll_(std::move(epoll)) {}

    Fd epoll_;
    // A number that is used again must not reach the function of the descriptor before it.
    struct Entry {
        uint64_t token;
        std::shared_ptr<Fn> fn;
    };
    std::map<int, Entry> entries_;
    std::map<uint64_t, std::shared_ptr<Fn>> by_token_;
    uint64_t next_token_ = 1;
    int interval_ms_ = -1;
    std::function<void()> tick_;
    bool stop_ = false;
};

}  // namespace stockade::cmd
