#include "userspace/pipeline/spool_pump.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "userspace/base/clock.h"

namespace stockade::pipeline {
namespace {

constexpr int kIdleMs = 20;  // the longest that an event waits for the pump to look
constexpr int kBusyMs = 10;  // while the exporter takes no more
constexpr int kFirstBackoffMs = 100;
constexpr int kMaxBackoffMs = 5000;
constexpr size_t kSendsPerPoll = 256;  // delivery reports must not pile up while there is much to send

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
    if (!exporter_) return;
    exporter_->Close(drain_ms);
    Acknowledge();
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
            Poll(kBusyMs);
        else
            std::this_thread::sleep_for(std::chrono::milliseconds(kBusyMs));
    }
}

void SpoolPump::Step() {
    if (failed_) return Recover();
    if (held_.empty() && under_way_.size() < kMaxUnderWay) {
        std::vector<Spool::Record> more = spool_.Next(reader_, kSendsPerPoll);
        held_.assign(std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    }
    if (held_.empty()) return Poll(kIdleMs);
    bool taken = true;
    while (!held_.empty() && !failed_ && (taken = SendNext())) {
    }
    Poll(taken ? 0 : kBusyMs);
}

void SpoolPump::Poll(int timeout_ms) {
    exporter_->Poll(timeout_ms);
    Acknowledge();
}

// All that was delivered at once, not one by one.
void SpoolPump::Acknowledge() {
    if (acks_.empty()) return;
    spool_.Ack(reader_, acks_);
    Count(&PumpCounters::delivered, acks_.size());
    acks_.clear();
}

// False, and the record stays held, when the exporter takes no more for now.
bool SpoolPump::SendNext() {
    const Spool::Record& record = held_.front();
    const auto event = model::EventBytes::Of(record.payload);
    if (!event) {
        // Its checksum was right: another version wrote it.
        Reject(record, "unreadable");
        return true;
    }
    // Before: the report may come while it is sent.
    under_way_[record.position] = {std::string(event->sandbox), event->export_seq, std::string(event->chain),
                                   record.again ? 0 : event->boot_ns};
    const Status status = exporter_->Send(record.position, *event, record.again);
    if (status.ok()) {
        Count(&PumpCounters::sent);
        held_.pop_front();
        return true;
    }
    under_way_.erase(record.position);
    if (absl::IsInvalidArgument(status)) {
        Reject(record, "refused by the exporter");
        return true;
    }
    if (absl::IsFailedPrecondition(status)) Remake();
    return false;
}

// The first of those held.
void SpoolPump::Reject(const Spool::Record& record, absl::string_view cause) {
    v1::Event event;
    (void)event.ParseFromString(record.payload);  // of what cannot be read as far as it can be
    spool_.Reject(reader_, record.position, event, cause);
    Count(&PumpCounters::rejected);
    held_.pop_front();
}

void SpoolPump::OnDelivered(uint64_t tag, const Status& status) {
    const auto found = under_way_.find(tag);
    if (found == under_way_.end()) return;
    const UnderWay what = std::move(found->second);
    under_way_.erase(found);
    if (status.ok()) {
        acks_.push_back(tag);
        backoff_ms_ = 0;
        return delivery_.ObserveSince(what.boot_ns, BootNow());
    }
    if (absl::IsInvalidArgument(status)) {
        v1::Event about;
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
    if (!under_way_.empty()) return Poll(kBusyMs);
    BackOff();
    held_.clear();
    spool_.Rewind(reader_);
    failed_ = false;
}

void SpoolPump::Remake() {
    exporter_->Close(0);  // tells of all that is under way
    Acknowledge();
    under_way_.clear();
    failed_ = true;
    (void)Make();  // else the old one says so again
}

void SpoolPump::Count(uint64_t PumpCounters::* counter, uint64_t by) {
    std::lock_guard lock(mutex_);
    counters_.*counter += by;
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
