#include "userspace/respond/killer.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "userspace/base/clock.h"
#include "userspace/base/errno.h"

namespace stockade::respond {
namespace {

constexpr uint64_t kAskAgainNs = 1'000'000'000;

}  // namespace

StatusOr<std::unique_ptr<Killer>> Killer::Create() {
    Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event.ok()) return ErrnoStatus(errno, "make an eventfd");
    Fd halt(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!halt.ok()) return ErrnoStatus(errno, "make an eventfd");
    return std::unique_ptr<Killer>(new Killer(std::move(event), std::move(halt)));
}

Killer::~Killer() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    const uint64_t one = 1;
    (void)!write(halt_.get(), &one, sizeof(one));  // of a counter that is 0
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Killer::Start(KillOrder order) {
    std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
    // Orders beyond the idle threads need new ones; a thread takes the next order when done.
    if (orders_.size() > idle_ && threads_.size() < kMaxThreads) {
        threads_.emplace_back([this] { Work(); });
    }
    wake_.notify_one();
}

void Killer::Work() {
    std::unique_lock lock(mutex_);
    while (true) {
        ++idle_;
        wake_.wait(lock, [this] { return stop_ || !orders_.empty(); });
        --idle_;
        if (orders_.empty()) return;
        KillOrder order = std::move(orders_.front());
        orders_.pop_front();
        lock.unlock();
        order.options.halt_fd = halt_.get();
        KillReport report = KillCgroup(order.cgroup.get(), order.options, order.evidence);
        const bool again = report.pending && order.wait_pending;
        Report({.id = order.id, .report = report, .last = !again});
        if (again) {
            report.pending = !EmptyAtLast(order.cgroup.get());
            if (!report.pending) report.times.empty_ns = BootNow();
            report.left = report.pending ? ListPids(order.cgroup.get(), kMaxLeft) : std::vector<int>();
            Report({.id = order.id, .report = report, .last = true});
        }
        lock.lock();
    }
}

// What is left ends when the kernel lets it, and what could not be asked to (no descriptor was free) is asked again.
bool Killer::EmptyAtLast(int cgroup_fd) {
    while (true) {
        const StatusOr<bool> empty = WaitEmpty(cgroup_fd, kAskAgainNs, halt_.get());
        if (empty.ok() && *empty) return true;
        pollfd halted{.fd = halt_.get(), .events = POLLIN, .revents = 0};
        const int pause_ms = empty.ok() ? 0 : static_cast<int>(kAskAgainNs / 1'000'000);  // a wait that fails at once is no wait
        if (poll(&halted, 1, pause_ms) == 1) return false;
        (void)AskKill(cgroup_fd);  // the next wait sees whether it helped
    }
}

void Killer::Report(Killed killed) {
    std::lock_guard lock(mutex_);
    finished_.push_back(std::move(killed));
    const uint64_t one = 1;
    // Fails only when the counter is full, and then the reader is awake anyway.
    (void)!write(event_.get(), &one, sizeof(one));
}

std::vector<Killed> Killer::Finished() {
    std::lock_guard lock(mutex_);
    uint64_t count = 0;
    (void)!read(event_.get(), &count, sizeof(count));  // EAGAIN = nothing new
    return std::exchange(finished_, {});
}

}  // namespace stockade::respond
