#include "userspace/pipeline/spool_pump.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <chrono>

#include "userspace/base/clock.h"

namespace stockade::pipeline {
namespace {

constexpr int kIdleMs = 20;  // the longest that an event waits for the pump to look
constexpr int kBusyMs = 10;  // while the exporter takes no more
constexpr int kFirstBackoffMs = 100;
constexpr int kMaxBackoffMs = 5000;
constexpr int kSendsPerPoll = 64;  // delivery reports must not pile up while there is much to send

}  // namespace

SpoolPump::SpoolPump(Spool& spool, std::string reader, MakeFn make)
    : spool_(spool), reader_(std::move(reader)), make_(std::move(make)) {}

SpoolPump::~SpoolPump() { Stop(0); }

Status SpoolPump::Start() {
    const Status made = Make();
    thread_ = std::thread([this] { Run(); });
    return made;
}

Status SpoolPump::Make() {
    auto made = make_();
    std::lock_guard lock(mutex_);
    made_ = made.status();
    if (!made.ok()) return made_;
    (*made)->OnDelivered([this](uint64_t tag, const Status& status) { OnDelivered(tag, status); });
    counters_.remade += exporter_ != nullptr;
    exporter_ = *std::move(made);
    return absl::OkStatus();
}

void SpoolPump::Stop(int drain_ms) {
    if (!thread_.joinable()) return;
    stop_ = true;
    thread_.join();
    if (exporter_) exporter_->Close(drain_ms);
}

void SpoolPump::Run() {
    // What it needs (a certificate, a password's file) may come later.
    while (!stop_ && !exporter_) {
        BackOff();
        if (!stop_) (void)Make();  // Health says what is wrong
    }
    while (!stop_) Step();
}

// A while that doubles. Reports are taken meanwhile.
void SpoolPump::BackOff() {
    backoff_ms_ = std::clamp(2 * backoff_ms_, kFirstBackoffMs, kMaxBackoffMs);
    for (int waited = 0; waited < backoff_ms_ && !stop_; waited += kBusyMs) {
        if (exporter_)
            exporter_->Poll(kBusyMs);
        else
            std::this_thread::sleep_for(std::chrono::milliseconds(kBusyMs));
    }
}

void SpoolPump::Step() {
    if (failed_) return Recover();
    for (int i = 0; i < kSendsPerPoll && !failed_; ++i) {
        if (!held_) held_ = under_way_.size() < kMaxUnderWay ? spool_.Next(reader_) : std::nullopt;
        if (!held_) return exporter_->Poll(kIdleMs);
        SendNext();
        if (held_) return exporter_->Poll(kBusyMs);
    }
    exporter_->Poll(0);
}

// Leaves the record held when the exporter takes no more for now.
void SpoolPump::SendNext() {
    // One block of memory for all of its messages.
    google::protobuf::Arena arena;
    v1::Event& event = *google::protobuf::Arena::CreateMessage<v1::Event>(&arena);
    if (!event.ParseFromString(held_->payload)) {
        // Its checksum was right: another version wrote it.
        spool_.Reject(reader_, held_->position, event, "unreadable");
        Count(&PumpCounters::rejected);
        return held_.reset();
    }
    // Before: the report may come while it is sent.
    under_way_[held_->position] = {event.sandbox().id(), event.node(), event.export_seq(), event.chain(),
                                   held_->again ? 0 : event.boot_ns()};
    const Status status = exporter_->Send(held_->position, event, held_->again);
    if (status.ok()) {
        Count(&PumpCounters::sent);
        return held_.reset();
    }
    under_way_.erase(held_->position);
    if (absl::IsInvalidArgument(status)) {
        spool_.Reject(reader_, held_->position, event, "refused by the exporter");
        Count(&PumpCounters::rejected);
        held_.reset();
    } else if (absl::IsFailedPrecondition(status)) {
        Remake();
    }
}

void SpoolPump::OnDelivered(uint64_t tag, const Status& status) {
    const auto found = under_way_.find(tag);
    if (found == under_way_.end()) return;
    const UnderWay what = std::move(found->second);
    under_way_.erase(found);
    if (status.ok()) {
        spool_.Ack(reader_, tag);
        backoff_ms_ = 0;
        delivery_.ObserveSince(what.boot_ns, BootNow());
        return Count(&PumpCounters::delivered);
    }
    if (absl::IsInvalidArgument(status)) {
        v1::Event about;
        about.set_node(what.node);
        if (!what.sandbox.empty()) about.mutable_sandbox()->set_id(what.sandbox);
        about.set_export_seq(what.export_seq);
        about.set_chain(what.chain);
        spool_.Reject(reader_, tag, about, "refused by the peer");
        return Count(&PumpCounters::rejected);
    }
    failed_ = true;
    Count(&PumpCounters::failed);
}

// Once nothing is under way any more, what failed is handed out again.
void SpoolPump::Recover() {
    if (!under_way_.empty()) return exporter_->Poll(kBusyMs);
    BackOff();
    held_.reset();
    spool_.Rewind(reader_);
    failed_ = false;
}

void SpoolPump::Remake() {
    exporter_->Close(0);  // tells of all that is under way
    under_way_.clear();
    failed_ = true;
    (void)Make();  // else the old one says so again
}

void SpoolPump::Count(uint64_t PumpCounters::* counter) {
    std::lock_guard lock(mutex_);
    ++(counters_.*counter);
}

PumpCounters SpoolPump::counters() const {
    const bool up = Health().ok();
    std::lock_guard lock(mutex_);
    PumpCounters counters = counters_;
    counters.up = up;
    counters.delivery = delivery_.Read();
    return counters;
}

Status SpoolPump::Health() const {
    std::shared_ptr<exporters::SpooledExporter> exporter;
    {
        std::lock_guard lock(mutex_);
        if (!made_.ok()) return made_;
        exporter = exporter_;
    }
    return exporter ? exporter->Health() : absl::FailedPreconditionError("not started");
}

}  // namespace stockade::pipeline
