#include "userspace/pipeline/event_store.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/log.h"
#include "userspace/base/wall_time.h"
#include "userspace/model/sandbox.h"

namespace stockade::pipeline {
namespace {

constexpr uint64_t kNanos = 1'000'000'000;
// What a power failure takes of the acknowledgements, and of records that no exporter was ready for.
constexpr auto kSync = std::chrono::milliseconds(1000);
constexpr uint64_t kReopenNs = 5 * kNanos;
// What an event waits for others to be synced with; fifty syncs a second at most.
constexpr uint64_t kCommitNs = 20'000'000;
// While the disk takes nothing. Also the longest that the thread sleeps.
constexpr auto kRetry = std::chrono::milliseconds(200);
// Events between two looks of a reader: some milliseconds.
constexpr int kAtOnce = 256;

// A record of the kernel's that is no more than an event of its sandbox: all that is to be known of it is in its bytes.
bool IsPlain(const v1::Event& event) {
    if (event.kernel_seq() == 0 || event.sandbox().id().empty() || event.export_seq() != 0 || !event.chain().empty()) return false;
    switch (event.payload_case()) {
        case v1::Event::kExec:
        case v1::Event::kExit:
        case v1::Event::kFork:
        case v1::Event::kFile:
        case v1::Event::kNet:
        case v1::Event::kEscape:
            return true;
        case v1::Event::kDns:
            return !event.dns().quiet();
        default:
            return false;
    }
}

// An event of this agent's own time.
void Stamp(v1::Event* event) {
    event->set_boot_ns(BootNow());
    const uint64_t wall = WallAt(event->boot_ns());
    event->mutable_time()->set_seconds(static_cast<int64_t>(wall / kNanos));
    event->mutable_time()->set_nanos(static_cast<int32_t>(wall % kNanos));
    event->set_id(absl::StrCat("evt_", model::NewUlid()));
}

}  // namespace

std::unique_ptr<EventStore> EventStore::Open(Options options) {
    std::unique_ptr<EventStore> store(new EventStore(std::move(options)));
    store->Told(store->OpenSpool());
    if (store->spool_) store->earlier_ = store->spool_->Unsealed();
    return store;
}

EventStore::~EventStore() { Stop(0); }

void EventStore::Start(std::set<std::string> alive) {
    alive_ = std::move(alive);
    thread_ = std::thread([this] { Run(); });
    syncer_ = std::thread([this] { Sync(); });
}

void EventStore::Stop(int drain_ms) {
    if (!thread_.joinable()) return;
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    stopped_.notify_all();
    thread_.join();
    syncer_.join();
    if (!spool_) return;
    const uint64_t end = BootNow() + static_cast<uint64_t>(drain_ms) * 1'000'000;
    for (const auto& pump : pumps_) {
        const uint64_t now = BootNow();
        pump->Stop(end > now ? static_cast<int>((end - now) / 1'000'000) : 0);
    }
    Told(spool_->Sync());
}

Status EventStore::OpenSpool() {
    opened_ns_ = BootNow();
    if (!key_) {
        SK_ASSIGN_OR_RETURN(NodeKey key, NodeKey::LoadOrCreate(options_.key_path));
        key_ = std::make_unique<NodeKey>(std::move(key));
    }
    Spool::Options options = options_.spool;
    options.key = key_.get();
    options.commit_ns = kCommitNs;
    for (const Reader& reader : options_.readers) options.readers.push_back(reader.name);
    SK_ASSIGN_OR_RETURN(std::unique_ptr<Spool> spool, Spool::Open(std::move(options)));
    LogInfo("events are spooled in ", options_.spool.dir, "; node key ", key_->public_hex());
    std::lock_guard lock(mutex_);
    spool_ = std::move(spool);
    return absl::OkStatus();
}

void EventStore::StartPumps() {
    std::vector<std::unique_ptr<SpoolPump>> pumps;
    for (const Reader& reader : options_.readers) {
        pumps.push_back(std::make_unique<SpoolPump>(*spool_, reader.name, reader.make));
        (void)pumps.back()->Start();  // what is wrong is its health, told by WatchPumps; it is tried again
    }
    complained_.assign(pumps.size(), false);
    std::lock_guard lock(mutex_);
    pumps_ = std::move(pumps);
}

// Nothing of them comes any more: their end was while no agent ran, or the machine's.
void EventStore::SealGone() {
    for (const auto& [id, books] : spool_->Unsealed()) {
        if (alive_.count(id) > 0) continue;
        v1::Event event;
        Stamp(&event);
        event.set_node(options_.spool.node);
        event.set_kind("lifecycle");
        *event.mutable_sandbox() = books.sandbox;
        event.mutable_sandbox()->set_id(id);
        event.mutable_lifecycle()->set_op("destroyed");
        event.mutable_lifecycle()->set_detail("it was gone when the agent started: nobody saw its end");
        (void)spool_->Append(&event);  // the seal says all that must be said
        const Status sealed = spool_->Seal(event.sandbox());
        if (!sealed.ok()) LogWarning(id, ": ", sealed.message());
    }
}

void EventStore::Put(Item item) {
    {
        std::lock_guard lock(mutex_);
        const bool own = item.own();
        if (own && !item.seal && own_waiting_ >= kMaxOwnWaiting) {
            ++counters_.overflowed;
            ++overflow_to_tell_;
            return;
        }
        own_waiting_ += own;
        queue_.push_back(std::move(item));
    }
}

void EventStore::Take(const v1::Event& event) {
    Item item;
    if (IsPlain(event)) {
        AppendCanonical(event, &item.bytes);
    } else {
        item.event = std::make_unique<v1::Event>(event);
    }
    Put(std::move(item));
}

void EventStore::Destroyed(const v1::Sandbox& sandbox) {
    auto event = std::make_unique<v1::Event>();
    *event->mutable_sandbox() = sandbox;
    Put({.event = std::move(event), .bytes = {}, .seal = true});
}

void EventStore::EndPass(uint64_t pass) {
    {
        std::lock_guard lock(mutex_);
        pass_ = std::max(pass_, pass);
        if (queue_.empty() && idle_) {
            stored_pass_ = pass_;
            return;
        }
    }
    wake_.notify_one();
}

void EventStore::Run() {
    bool started = false;
    uint64_t pass = 0;
    for (bool stop = false, well = true; !stop;) {
        {
            std::unique_lock lock(mutex_);
            idle_ = hand_.empty() && well && spool_;
            // What the agent says itself waits for a pass, or for the next look. A disk that took nothing is left alone for so long.
            wake_.wait_for(lock, kRetry,
                           [&] { return stop_ || (well && spool_ && pass_ != pass && !queue_.empty()); });
            idle_ = false;
            if (hand_.empty()) {
                hand_.swap(queue_);
            } else {
                for (Item& item : queue_) hand_.push_back(std::move(item));
                queue_.clear();
            }
            pass = pass_;
            stop = stop_;
        }
        if (!spool_ && BootNow() - opened_ns_ >= kReopenNs) Told(OpenSpool());
        if (!spool_) continue;
        if (!started) {
            started = true;
            earlier_ = spool_->Unsealed();
            SealGone();
            StartPumps();
        }
        well = Step(pass);
    }
}

bool EventStore::Step(uint64_t pass) {
    Status status = Store();
    if (status.ok()) status = spool_->Flush();
    if (status.ok()) {
        std::lock_guard lock(mutex_);
        stored_pass_ = pass;
    }
    Status synced;
    {
        std::lock_guard lock(mutex_);
        synced = synced_;
    }
    Told(status.ok() ? synced : status);
    return status.ok();
}

// A disk that is slow to sync must not keep records in the rings, which hold a tenth of a second of a flood.
void EventStore::Sync() {
    for (;;) {
        std::shared_ptr<Spool> spool;
        {
            std::lock_guard lock(mutex_);
            if (!pumps_.empty() || options_.readers.empty()) spool = spool_;
        }
        if (spool) {
            const Status synced = spool->Sync();
            WatchPumps();
            std::lock_guard lock(mutex_);
            synced_ = synced;
        }
        std::unique_lock lock(mutex_);
        if (stopped_.wait_for(lock, spool ? kSync : kRetry, [this] { return stop_; })) return;
    }
}

// Stops at the first that the disk does not take; it and what is behind it wait.
Status EventStore::Store() {
    SK_RETURN_IF_ERROR(TellOverflow());
    while (!hand_.empty()) SK_RETURN_IF_ERROR(StoreSome());
    return TellAllLeftOut();
}

Status EventStore::StoreSome() {
    uint64_t stored = 0, refused = 0, own = 0;
    Status status;
    {
        const auto hold = spool_->Hold();
        for (int i = 0; i < kAtOnce && !hand_.empty(); ++i) {
            status = StoreOne(hand_.front());
            if (absl::IsResourceExhausted(status)) break;
            own += hand_.front().own();
            ++(status.ok() ? stored : refused);
            hand_.pop_front();
        }
    }
    std::lock_guard lock(mutex_);
    own_waiting_ -= own;
    counters_.stored += stored;
    counters_.refused += refused;
    return absl::IsResourceExhausted(status) ? status : absl::OkStatus();
}

Status EventStore::StoreBytes(const Item& item) {
    const auto event = model::EventBytes::Of(item.bytes);
    if (!event) return absl::InternalError("an event that was just serialised cannot be read");
    const Status status = spool_->Append(*event);
    if (!absl::IsInvalidArgument(status)) return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;
    v1::Event large;  // of which is told
    SK_RETURN_IF_ERROR(event->Parse(&large));
    return Append(&large);
}

Status EventStore::StoreOne(Item& item) {
    if (item.event == nullptr) return StoreBytes(item);
    v1::Event& event = *item.event;
    const std::string& id = event.sandbox().id();
    if (event.has_dns() && event.dns().quiet()) {
        // Of before this start: counted then.
        if (spool_->Has(event)) return absl::OkStatus();
        if (const auto books = earlier_.find(id); books != earlier_.end() && event.boot_ns() <= books->second.left_out_boot_ns)
            return absl::OkStatus();
        LeftOut& left_out = left_out_[id];
        if (left_out.count++ == 0) {
            left_out.sandbox = event.sandbox();
            left_out.node = event.node();
            left_out.boot_ns = event.boot_ns();
        }
        left_out.last_boot_ns = std::max(left_out.last_boot_ns, event.boot_ns());
        return absl::OkStatus();
    }
    if (item.seal || event.has_summary()) SK_RETURN_IF_ERROR(TellLeftOut(id));
    if (item.seal) {
        const Status status = spool_->Seal(event.sandbox());
        return absl::IsFailedPrecondition(status) ? absl::OkStatus() : status;  // it was sealed as gone
    }
    // This agent has seen the end of it alone.
    if (event.has_summary() && earlier_.count(id) > 0) {
        event.mutable_summary()->clear_kinds();
        for (const auto& [kind, events] : spool_->BooksOf(id).kinds) {
            v1::KindCount* count = event.mutable_summary()->add_kinds();
            count->set_kind(kind);
            count->set_events(events);
        }
    }
    return Append(&event);
}

Status EventStore::Append(v1::Event* event) {
    const Status status = spool_->Append(*event);
    if (status.ok() || absl::IsAlreadyExists(status) || absl::IsResourceExhausted(status))
        return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;
    // After its seal, which the spool counts, or larger than any record.
    if (!absl::IsInvalidArgument(status)) return status;
    LogError(status.message());
    v1::Event lost;
    Stamp(&lost);
    lost.set_node(event->node());
    lost.set_kind("lost");
    *lost.mutable_sandbox() = event->sandbox();
    lost.mutable_lost()->set_count(1);
    lost.mutable_lost()->set_stage("spool");
    lost.mutable_lost()->set_cause("too large");
    lost.mutable_lost()->set_first_seq(event->kernel_seq());
    lost.mutable_lost()->set_last_seq(event->kernel_seq());
    (void)spool_->Append(&lost);  // refused when the disk takes nothing: then the gap tells it
    return status;
}

Status EventStore::TellLeftOut(const std::string& sandbox) {
    const auto found = left_out_.find(sandbox);
    if (found == left_out_.end()) return absl::OkStatus();
    v1::Event event;
    Stamp(&event);
    event.set_node(found->second.node);
    event.set_kind("repeat");
    *event.mutable_sandbox() = found->second.sandbox;
    event.set_section("dns");
    event.mutable_repeat()->set_count(found->second.count);
    event.mutable_repeat()->set_first_boot_ns(found->second.boot_ns);
    event.set_boot_ns(found->second.last_boot_ns);  // by which they are known when they are read again
    const Status status = spool_->Append(&event);
    if (absl::IsResourceExhausted(status)) return status;
    {
        std::lock_guard lock(mutex_);  // the spool's is held before it, here and nowhere the other way round
        counters_.left_out += found->second.count;
    }
    left_out_.erase(found);
    return absl::OkStatus();
}

Status EventStore::TellAllLeftOut() {
    while (!left_out_.empty()) SK_RETURN_IF_ERROR(TellLeftOut(left_out_.begin()->first));
    return absl::OkStatus();
}

// Whose they were is not known any more.
Status EventStore::TellOverflow() {
    uint64_t count = 0;
    {
        std::lock_guard lock(mutex_);
        count = overflow_to_tell_;
    }
    if (count == 0) return absl::OkStatus();
    v1::Event event;
    Stamp(&event);
    event.set_node(options_.spool.node);
    event.set_kind("lost");
    event.mutable_lost()->set_count(count);
    event.mutable_lost()->set_stage("spool");
    event.mutable_lost()->set_cause("the disk takes nothing");
    SK_RETURN_IF_ERROR(spool_->Append(&event));
    std::lock_guard lock(mutex_);
    overflow_to_tell_ -= count;
    return absl::OkStatus();
}

// Once for each change: a disk that is full for a day is one line, and one when it is well again.
void EventStore::Told(const Status& status) {
    {
        std::lock_guard lock(mutex_);
        if (status == health_) return;
        health_ = status;
    }
    if (status.ok())
        LogInfo("events are spooled again");
    else
        LogError("events are not spooled, and stay in the rings: ", status.message());
}

void EventStore::WatchPumps() {
    for (size_t i = 0; i < pumps_.size(); ++i) {
        const Status health = pumps_[i]->Health();
        if (health.ok() != complained_[i]) continue;
        complained_[i] = !health.ok();
        if (health.ok())
            LogInfo("exporter ", options_.readers[i].name, ": delivers again");
        else
            LogWarning("exporter ", options_.readers[i].name, ": ", health.message(), "; events wait in the spool");
    }
}

StoreCounters EventStore::counters() const {
    StoreCounters counters;
    std::shared_ptr<Spool> spool;
    {
        std::lock_guard lock(mutex_);
        counters = counters_;
        spool = spool_;
        for (size_t i = 0; i < pumps_.size(); ++i) counters.readers[options_.readers[i].name] = pumps_[i]->counters();
    }
    if (spool) counters.spool = spool->counters();
    return counters;
}

Status EventStore::Health() const {
    std::lock_guard lock(mutex_);
    return health_;
}

}  // namespace stockade::pipeline
