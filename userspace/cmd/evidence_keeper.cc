#include "userspace/cmd/evidence_keeper.h"

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/base/log.h"
#include "userspace/model/json.h"

namespace stockade::cmd {
namespace {

// Looking at all folders takes a stat of each file.
constexpr uint64_t kSweepEveryNs = 60'000'000'000;
// Hooks that run are looked at so often; with none nobody wakes.
constexpr std::chrono::milliseconds kTurn{200};
constexpr std::chrono::seconds kIdle{10};
constexpr uint64_t kHourNs = 3'600'000'000'000;

}  // namespace

StatusOr<std::unique_ptr<EvidenceKeeper>> EvidenceKeeper::Create(const EvidenceConfig& config, const std::vector<std::string>& alive) {
    if (mkdir(config.dir.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(errno, absl::StrCat("evidence: make ", config.dir));
    struct stat info{};
    if (stat(config.dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return absl::FailedPreconditionError(absl::StrCat("evidence: ", config.dir, " is no directory"));
    // What is in it may hold what tools read.
    if ((info.st_mode & 0077) != 0 || info.st_uid != geteuid()) return absl::FailedPreconditionError(absl::StrCat("evidence: ", config.dir, " must be the agent's own, with mode 0700"));
    Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event.ok()) return ErrnoStatus(errno, "make an eventfd");
    if (const int closed = sandbox::CloseUnfinished(config.dir, alive); closed > 0) LogWarning("evidence: ", closed, " folders of an agent that was killed: closed as interrupted");
    auto keeper = std::unique_ptr<EvidenceKeeper>(new EvidenceKeeper(config, std::move(event)));
    keeper->thread_ = std::thread([raw = keeper.get()] { raw->Write(); });
    return keeper;
}

EvidenceKeeper::~EvidenceKeeper() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
}

void EvidenceKeeper::Put(Order order) {
    {
        std::lock_guard lock(mutex_);
        orders_.push_back(std::move(order));
    }
    wake_.notify_one();
}

void EvidenceKeeper::Open(const std::string& id, Files files) {
    {
        std::lock_guard lock(mutex_);
        open_[id] = 0;
    }
    Put({.kind = Order::Kind::kOpen, .id = id, .files = std::move(files)});
}

void EvidenceKeeper::OnEvent(const v1::Event& event) {
    const std::string& id = event.sandbox().id();
    {
        std::lock_guard lock(mutex_);
        if (open_.find(id) == open_.end()) return;
    }
    std::string line = model::ToJsonLine(event) + "\n";
    {
        std::lock_guard lock(mutex_);
        const auto found = open_.find(id);
        if (found == open_.end()) return;  // closed meanwhile: it was told of too late for its folder
        if (waiting_bytes_ + line.size() > kMaxWaitingBytes) {
            ++found->second;
            ++counters_.events_dropped;
            return;
        }
        waiting_bytes_ += line.size();
        // Beside the last one of the same sandbox: one write for many.
        if (!orders_.empty() && orders_.back().kind == Order::Kind::kEvent && orders_.back().id == id) {
            Files& files = orders_.back().files;
            if (event.has_finding()) files["findings.jsonl"] += line;
            files["events.jsonl"] += std::move(line);
            return;
        }
        Order order{.kind = Order::Kind::kEvent, .id = id, .files = {}};
        if (event.has_finding()) order.files["findings.jsonl"] = line;
        order.files["events.jsonl"] = std::move(line);
        orders_.push_back(std::move(order));
    }
    wake_.notify_one();
}

void EvidenceKeeper::Finish(const std::string& id, Files files) {
    Order order{.kind = Order::Kind::kFinish, .id = id, .files = std::move(files)};
    {
        std::lock_guard lock(mutex_);
        const auto found = open_.find(id);
        if (found != open_.end()) order.events_dropped = found->second;
        open_.erase(id);
    }
    Put(std::move(order));
}

std::vector<EvidenceKeeper::Kept> EvidenceKeeper::TakeKept() {
    uint64_t count = 0;
    (void)!read(event_.get(), &count, sizeof(count));
    std::lock_guard lock(mutex_);
    return std::exchange(kept_, {});
}

EvidenceKeeper::Counters EvidenceKeeper::counters() {
    std::lock_guard lock(mutex_);
    return counters_;
}

void EvidenceKeeper::Write() {
    Sweep(true);
    std::unique_lock lock(mutex_);
    while (true) {
        if (orders_.empty()) {
            if (stop_) return;
            if (hook_.idle()) {
                wake_.wait_for(lock, kIdle);
            } else {
                wake_.wait_for(lock, kTurn);
            }
        }
        std::deque<Order> orders = std::exchange(orders_, {});
        waiting_bytes_ = 0;
        lock.unlock();
        for (const Order& order : orders) Do(order);
        const uint64_t failed = hook_.Turn();
        if (orders.empty()) Sweep(false);  // nobody waits for it then
        lock.lock();
        counters_.hooks_failed += failed;
    }
}

void EvidenceKeeper::Do(const Order& order) {
    if (order.kind == Order::Kind::kOpen) {
        auto folder = sandbox::EvidenceFolder::Reopen(config_.dir, order.id);
        if (!folder.ok()) folder = sandbox::EvidenceFolder::Create(config_.dir, order.id, WallNow());
        if (!folder.ok()) return LogError(order.id, ": no evidence is kept of it: ", folder.status().message());
        folders_[order.id] = *std::move(folder);
    }
    const auto found = folders_.find(order.id);
    if (found != folders_.end()) {
        for (const auto& [name, bytes] : order.files) found->second->Append(name, bytes);
    }
    if (order.kind == Order::Kind::kFinish) Close(order);
}

void EvidenceKeeper::Close(const Order& order) {
    Kept kept{.id = order.id, .path = "", .manifest_sha256 = absl::DataLossError("evidence: there is no folder"), .boot_ns = 0};
    if (const auto found = folders_.find(order.id); found != folders_.end()) {
        kept.path = found->second->path();
        std::string id;
        model::AppendJsonString(order.id, &id);
        kept.manifest_sha256 = found->second->Finish({{"sandbox", id}, {"closed_wall_ns", absl::StrCat("\"", WallNow(), "\"")}, {"events_dropped", absl::StrCat(order.events_dropped)}});
        folders_.erase(found);
        hook_.Tell(kept.path);
    }
    kept.boot_ns = BootNow();
    {
        std::lock_guard lock(mutex_);
        ++(kept.manifest_sha256.ok() ? counters_.kept : counters_.failed);
        kept_.push_back(std::move(kept));
    }
    const uint64_t one = 1;
    (void)!write(event_.get(), &one, sizeof(one));
}

void EvidenceKeeper::Sweep(bool now) {
    if (!now && BootNow() - swept_ns_ < kSweepEveryNs) return;
    swept_ns_ = BootNow();
    const sandbox::Swept swept = sandbox::SweepEvidence(config_.dir, {.max_bytes = config_.max_bytes, .max_age_ns = config_.max_age_hours * kHourNs}, WallNow());
    for (const std::string& failed : swept.failed) LogWarning("evidence: ", failed);
    std::lock_guard lock(mutex_);
    counters_.removed += swept.removed;
    counters_.folders = swept.folders;
    counters_.bytes = swept.bytes;
}

}  // namespace stockade::cmd
