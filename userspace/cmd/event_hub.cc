#include "userspace/cmd/event_hub.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/base/log.h"

namespace stockade::cmd {
namespace {

// How long one look at the rings waits for a record. Busy: also the longest that telemetry waits for it.
constexpr int kBusyPollMs = 5;
constexpr int kIdlePollMs = 250;

}  // namespace

EventHub::EventHub(kernel::Sensor& sensor, pipeline::EventPath::Options options, RawFn raw,
                   pipeline::EventStore* store, Fd event)
    : sensor_(sensor), raw_(std::move(raw)), store_(store), event_(std::move(event)), path_(std::move(options)) {
    path_.AddUrgentObserver([this](const v1::Event& event) { OnUrgent(event); });
    if (store_ != nullptr) path_.AddObserver([this](const v1::Event& event) { store_->Take(event); });
    path_.AddObserver([this](const v1::Event& event) { OnEvent(event); });
}

StatusOr<std::unique_ptr<EventHub>> EventHub::Create(kernel::Sensor& sensor,
                                                     pipeline::EventPath::Options options, RawFn raw,
                                                     pipeline::EventStore* store) {
    Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event.ok()) return ErrnoStatus(errno, "make an eventfd");
    return std::unique_ptr<EventHub>(new EventHub(sensor, std::move(options), std::move(raw), store, std::move(event)));
}

EventHub::~EventHub() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    released_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void EventHub::Start() {
    thread_ = std::thread([this] { Read(); });
}

void EventHub::Wake() {
    const uint64_t one = 1;
    (void)!write(event_.get(), &one, sizeof(one));  // full = awake already
}

void EventHub::OnUrgent(const v1::Event& event) {
    // Under mode: observe the verdict says what would have been; nothing was done, and nothing is.
    if (!event.has_lifecycle() && event.outcome() == "done") return;
    {
        std::lock_guard lock(mutex_);
        if (!urgent_ids_.insert(event.sandbox().id()).second) return;
        urgent_.push_back(event);
    }
    Wake();
}

void EventHub::SetHold(bool hold) {
    {
        std::lock_guard lock(mutex_);
        hold_ = hold;
    }
    released_.notify_all();
}

// False = the hub ends.
bool EventHub::AwaitRelease() {
    std::unique_lock lock(mutex_);
    released_.wait(lock, [this] { return stop_ || !hold_; });
    return !stop_;
}

void EventHub::OnEvent(const v1::Event& event) {
    if (!listening_ || (event.has_dns() && event.dns().quiet())) return;
    StreamedEvent streamed{.sandbox = event.sandbox().id(),
                           .session = event.sandbox().session(),
                           .kind = event.kind(),
                           .bytes = event.SerializeAsString()};
    {
        std::lock_guard lock(mutex_);
        if (waiting_bytes_ + streamed.bytes.size() > kMaxWaitingBytes) {
            ++dropped_;
            return;
        }
        waiting_bytes_ += streamed.bytes.size();
        events_.push_back(std::move(streamed));
        if (events_.size() > 1) return;  // whoever put the first in has woken the reader
    }
    Wake();
}

void EventHub::Read() {
    Status last;
    while (AwaitRelease()) {
        const uint64_t pass = ++passes_started_;
        const bool hurry = wanted_ >= pass;
        const StatusOr<int> count = sensor_.PollRings(
            hurry   ? 0
            : busy_ ? kBusyPollMs
                    : kIdlePollMs,
            [this](kernel::Ring, std::span<const uint8_t> record) {
                if (raw_) raw_(record);
                path_.OnRecord(record);
            });
        if (!count.ok() && count.status() != last) LogError("reading the rings: ", count.status().message());
        last = count.status();
        path_.OnDrained(BootNow());
        ClosePass(pass);
        passes_done_ = pass;
        uint64_t want = wanted_;
        if (want != 0 && want <= pass && wanted_.compare_exchange_strong(want, 0)) Wake();
        // A ring that cannot be read must not become a busy loop.
        if (!count.ok()) usleep(kBusyPollMs * 1000);
    }
}

// Nothing waits for a delivery where nobody listens and nothing is stored: the kernel's own counts close the books.
void EventHub::ClosePass(uint64_t pass) {
    uint64_t delivered = pass;
    const bool listening = listening_;
    const uint64_t handed_on = listening || store_ != nullptr ? path_.PassesHandedOn() : pass;
    if (listening) {
        std::lock_guard lock(mutex_);
        handed_on_ = std::max(handed_on_, handed_on);
        if (events_.empty() && taken_ == delivered_) taken_ = delivered_ = handed_on_;
        delivered = delivered_;
    }
    const kernel::RingPosition handed = sensor_.Handed();
    if (unreleased_.empty() || unreleased_.back().upto != handed) unreleased_.push_back({pass, handed});
    if (delivered < pass && sensor_.RingsHalfHeld()) {
        // A full ring would lose every sandbox's records, to save those of one agent that may die.
        delivered = pass;
        ++early_releases_;
    }
    // What is not stored stays, whoever else is in need: that loss is the ring's, which the numbers tell of.
    if (store_ != nullptr) {
        store_->EndPass(handed_on);
        delivered = std::min(delivered, store_->stored_pass());
    }
    while (!unreleased_.empty() && unreleased_.front().pass <= delivered) {
        sensor_.ReleaseRings(unreleased_.front().upto);
        unreleased_.pop_front();
    }
}

std::vector<v1::Event> EventHub::TakeUrgent() {
    std::lock_guard lock(mutex_);
    uint64_t count = 0;
    (void)!read(event_.get(), &count, sizeof(count));  // EAGAIN = nothing new
    urgent_ids_.clear();
    return std::exchange(urgent_, {});
}

std::vector<StreamedEvent> EventHub::TakeEvents() {
    std::lock_guard lock(mutex_);
    waiting_bytes_ = 0;
    taken_ = handed_on_;
    return std::exchange(events_, {});
}

void EventHub::Delivered() {
    std::lock_guard lock(mutex_);
    delivered_ = taken_;
}

uint64_t EventHub::RequestDrain() {
    // A pass that has begun may have looked at a ring before this moment.
    const uint64_t want = passes_started_ + 1;
    uint64_t before = wanted_;
    while (before < want && !wanted_.compare_exchange_weak(before, want)) {
    }
    sensor_.WakeRings();
    return want;
}

}  // namespace stockade::cmd
