// The stub's one thread: descriptors, timers, and calls from other threads.
//
//   SK_ASSIGN_OR_RETURN(auto loop, StubLoop::Create());
//   std::thread thread([&] { loop->Run(); });
//   loop->Call([&] { ... });   // from another thread: on the loop's, done when it returns
//   loop->Stop(); thread.join();
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::dns {

// All but Call and Stop belong to the loop's thread (or to whoever has it before Run).
class StubLoop {
  public:
    using Fn = std::function<void(uint32_t events)>;
    using Timer = std::pair<uint64_t, uint64_t>;  // boot ns, number; {0, 0} is none

    static StatusOr<std::unique_ptr<StubLoop>> Create();

    // `fd` is borrowed until Forget, which comes before its close.
    Status Watch(int fd, uint32_t events, Fn fn);
    void Change(int fd, uint32_t events);
    void Forget(int fd);

    Timer After(uint32_t ms, std::function<void()> fn);
    void Cancel(Timer* timer);
    // Once the running function has returned: for what must not die under its own feet.
    void Defer(std::function<void()> fn) { deferred_.push_back(std::move(fn)); }

    // Not from the loop's own thread. After the loop's end `fn` runs on the caller's.
    void Call(const std::function<void()>& fn);
    void Run();
    void Stop();

  private:
    StubLoop(Fd epoll, Fd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
    int WaitMs() const;
    void RunCalls();
    void RunTimers();
    void RunDeferred();
    void Wake();

    Fd epoll_, wake_;
    // By token: a descriptor's number that is used again must not reach the function of the one before.
    std::unordered_map<uint64_t, std::shared_ptr<Fn>> functions_;
    std::unordered_map<int, uint64_t> tokens_;
    uint64_t next_ = 1;
    std::map<Timer, std::function<void()>> timers_;
    std::vector<std::function<void()>> deferred_;

    struct Request {
        const std::function<void()>* fn;
        bool done = false;
    };
    std::mutex mutex_;
    std::condition_variable done_;
    std::deque<Request*> requests_;  // guarded by mutex_, as are the next two
    bool stop_ = false;
    bool ended_ = false;
};

}  // namespace stockade::dns
