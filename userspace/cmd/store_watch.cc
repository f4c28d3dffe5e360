#include "userspace/cmd/store_watch.h"

#include <chrono>

#include "userspace/base/clock.h"

namespace stockade::cmd {
namespace {

constexpr std::chrono::seconds kLookEvery(1);

}  // namespace

StoreWatch::StoreWatch(const pipeline::EventStore& store) : store_(store) {
    auto first = std::make_shared<Seen>();
    first->boot_ns = BootNow();
    latest_ = std::move(first);
    thread_ = std::thread([this] { Run(); });
}

StoreWatch::~StoreWatch() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
}

std::shared_ptr<const StoreWatch::Seen> StoreWatch::latest() const {
    std::lock_guard lock(mutex_);
    return latest_;
}

void StoreWatch::Run() {
    while (true) {
        auto seen = std::make_shared<Seen>();
        seen->counters = store_.counters();
        seen->health = store_.Health();
        seen->boot_ns = BootNow();
        std::unique_lock lock(mutex_);
        latest_ = std::move(seen);
        if (wake_.wait_for(lock, kLookEvery, [this] { return stop_; })) return;
    }
}

}  // namespace stockade::cmd
