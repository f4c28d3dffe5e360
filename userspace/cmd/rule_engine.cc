#include "userspace/cmd/rule_engine.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/detect/view.h"
#include "userspace/model/reason.h"

namespace stockade::cmd {
namespace {

// Events between two looks at the queue: their findings go out as they come.
constexpr size_t kBatch = 256;
// (sandbox, rule) whose findings are counted: beyond it those that are full again are forgotten, or all.
constexpr size_t kMaxBuckets = 65'536;

// What no rule is about: the findings themselves, and what closes the books.
bool IsForRules(const v1::Event& event) {
    if (event.has_finding() || event.has_action() || event.has_summary() || event.has_seal() ||
        event.has_agent())
        return false;
    return !(event.has_dns() && event.dns().quiet());
}

bool IsTelemetry(const v1::Event& event) {
    return !model::IsRefusal(event) && !event.has_lifecycle() && !event.has_repeat() && !event.has_lost();
}

// Empty: no text of the field is known whole.
std::string LiteralOf(const v1::Event& event, const detect::Field& field) {
    detect::FieldValue value;
    detect::ReadField(event, field, &value);
    if (value.texts.empty() || value.texts.front().hole) return "";
    // U+FFFD stands for a byte that was no UTF-8: which one, the value does not tell any more.
    const std::string& text = value.texts.front().raw;
    return absl::StrContains(text, "\xef\xbf\xbd") ? "" : text;
}

// The same from the same event and rule, whoever finds it: who has one twice knows it.
std::string IdOf(const v1::Finding& finding) {
    if (finding.evidence().empty() || finding.evidence().rbegin()->empty()) return "";
    constexpr size_t kHashLetters = 12;
    return absl::StrCat(*finding.evidence().rbegin(), ".", finding.hash().substr(0, kHashLetters));
}

}  // namespace

RuleEngine::RuleEngine(Options options) : options_(std::move(options)) {}

RuleEngine::~RuleEngine() { Stop(); }

Status RuleEngine::Start() {
    event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_.ok()) return ErrnoStatus(errno, "make an eventfd");
    started_ns_ = BootNow();
    matcher_ = std::thread([this] {
        // Here, so that the agent's start does not wait; what comes meanwhile waits in the queue.
        Load(Broken::kLeaveOut);
        watcher_ = std::thread([this] { Watch(); });
        Match();
    });
    return absl::OkStatus();
}

void RuleEngine::Stop() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    more_.notify_all();
    room_.notify_all();
    look_.notify_all();
    if (matcher_.joinable()) matcher_.join();
    if (watcher_.joinable()) watcher_.join();
}

void RuleEngine::Wake() {
    const uint64_t one = 1;
    (void)!write(event_.get(), &one, sizeof(one));  // full = awake already
}

// False: it is left out, and counted.
bool RuleEngine::Admit(const v1::Event& event, std::unique_lock<std::mutex>& lock) {
    Missed* missed = nullptr;
    if (IsTelemetry(event)) {
        const auto own = of_one_.find(event.sandbox().id());
        if (telemetry_ < kMaxTelemetry && (own == of_one_.end() || own->second < kMaxOfOne)) return ++telemetry_, true;
        missed = &missed_[event.sandbox().id()];
        ++missed->events;
        ++counters_.missed_telemetry;
        return false;
    }
    const auto has_room = [this] { return stop_ || kept_ < kMaxKept; };
    if (!has_room() && !stalled_)
        stalled_ = !room_.wait_for(lock, std::chrono::nanoseconds(kMaxWaitNs), has_room);
    if (has_room()) return ++kept_, !stop_;
    ++missed_[event.sandbox().id()].refused;
    ++counters_.missed_refused;
    return false;
}

void RuleEngine::Push(const EventPtr& event) {
    if (idle_ || !IsForRules(*event)) return;
    bool was_empty;
    {
        std::unique_lock lock(mutex_);
        if (stop_ || !Admit(*event, lock)) return;
        was_empty = queue_.empty();
        queue_.push_back(event);
        ++of_one_[event->sandbox().id()];
        ++pushed_;
    }
    if (was_empty) more_.notify_one();
}

size_t RuleEngine::Waiting(const std::string& sandbox) {
    std::lock_guard lock(mutex_);
    const auto own = of_one_.find(sandbox);
    return own == of_one_.end() ? 0 : own->second;
}

void RuleEngine::Await(uint64_t handled) {
    std::lock_guard lock(mutex_);
    if (handled_ >= handled) return Wake();
    awaited_ = awaited_ == 0 ? handled : std::min(awaited_, handled);
}

RuleEngine::Taken RuleEngine::Take() {
    std::lock_guard lock(mutex_);
    uint64_t count = 0;
    (void)!read(event_.get(), &count, sizeof(count));  // EAGAIN = nothing new
    return {.findings = std::exchange(findings_, {}),
            .notices = std::exchange(notices_, {}),
            .missed = std::exchange(missed_, {}),
            .handled = handled_};
}

void RuleEngine::Load(Broken broken) {
    std::string signature = RulesSignature(options_.config);
    LoadedRules rules = LoadRules(options_.config, broken);
    Notice notice{.broken = !rules.errors.empty(), .text = ""};
    std::unique_ptr<Loaded> next;
    if (rules.errors.empty() || broken == Broken::kLeaveOut) {
        next = std::make_unique<Loaded>();
        next->disabled = std::move(rules.disabled);
        notice.text = absl::StrCat(rules.rules.size(), " rules from ", rules.files, " files");
        next->detector = std::make_unique<detect::Detector>(
            std::move(rules.rules), detect::RuleSet::Options{},
            detect::CorrelatorOptions{.max_groups = options_.config.max_groups,
                                      .max_events = options_.config.max_events});
    }
    if (notice.broken)
        absl::StrAppend(&notice.text,
                        next == nullptr ? "the rules stay as they were" : ", without those that have errors",
                        ": ", absl::StrJoin(rules.errors, "; "));
    if (!rules.warnings.empty()) absl::StrAppend(&notice.text, "; ", absl::StrJoin(rules.warnings, "; "));
    signature_ = std::move(signature);
    {
        std::lock_guard lock(mutex_);
        ++(notice.broken ? counters_.broken_loads : counters_.loads);
        if (next != nullptr) next_ = std::move(next);
        notices_.push_back(std::move(notice));
    }
    more_.notify_one();
    Wake();
}

// A file that is being written is looked at again: only what stays the same from one look to the next is read.
void RuleEngine::Watch() {
    std::string before = signature_;
    std::unique_lock lock(mutex_);
    while (!look_.wait_for(lock, std::chrono::nanoseconds(options_.look_ns), [this] { return stop_; })) {
        lock.unlock();
        std::string now = RulesSignature(options_.config);
        if (now == before && now != signature_) Load(Broken::kGiveUp);
        before = std::move(now);
        lock.lock();
    }
}

void RuleEngine::Match() {
    std::vector<EventPtr> batch;
    std::unique_lock lock(mutex_);
    while (true) {
        more_.wait(lock, [this] { return stop_ || !queue_.empty() || next_ != nullptr; });
        if (stop_) return;
        std::unique_ptr<Loaded> next = std::exchange(next_, nullptr);
        for (batch.clear(); batch.size() < kBatch && !queue_.empty(); queue_.pop_front())
            batch.push_back(std::move(queue_.front()));
        lock.unlock();
        if (next != nullptr) Swap(std::move(next));
        size_t telemetry = 0;
        for (const EventPtr& event : batch) {
            Handle(*event);
            telemetry += IsTelemetry(*event);
        }
        lock.lock();
        handled_ += batch.size();
        CountInto(&counters_);
        telemetry_ -= telemetry;
        kept_ -= batch.size() - telemetry;
        for (const EventPtr& event : batch) {
            const auto own = of_one_.find(event->sandbox().id());
            if (--own->second == 0) of_one_.erase(own);
        }
        stalled_ = stalled_ && batch.empty();
        room_.notify_all();
        if (awaited_ != 0 && handled_ >= awaited_) {
            awaited_ = 0;
            Wake();
        }
    }
}

void RuleEngine::Swap(std::unique_ptr<Loaded> next) {
    if (current_.detector != nullptr) {
        CountInto(&before_);
        next->detector->Adopt(*current_.detector);
    }
    current_ = std::move(*next);
    idle_ = current_.detector->rules().empty();
}

// What the sets of rules count themselves; the rest of `out` stays.
void RuleEngine::CountInto(RuleCounters* out) const {
    if (current_.detector == nullptr) return;
    const detect::Detector& now = *current_.detector;
    out->events = before_.events + now.counters().events;
    out->findings = before_.findings + now.counters().findings;
    out->undecidable = before_.undecidable + now.counters().undecidable;
    out->looked_at = before_.looked_at + now.match_counters().evaluated;
    out->unfiltered = before_.unfiltered + now.match_counters().unfiltered;
    const detect::Correlator::Counters &was = before_.correlations, &is = now.correlation_counters();
    out->correlations = {.late = was.late + is.late,
                         .ungrouped = was.ungrouped + is.ungrouped,
                         .undecidable = was.undecidable + is.undecidable,
                         .evicted_groups = was.evicted_groups + is.evicted_groups,
                         .evicted_events = was.evicted_events + is.evicted_events};
    out->rules = now.rules().size();
    out->groups = now.correlation_groups();
    out->group_events = now.correlation_events();
}

RuleCounters RuleEngine::counters() {
    std::lock_guard lock(mutex_);
    RuleCounters out = counters_;
    out.waiting = queue_.size();
    return out;
}

void RuleEngine::Handle(const v1::Event& event) {
    std::vector<RuleFinding> made;
    for (const detect::DetectedFinding& found : current_.detector->OnEvent(event)) {
        if (current_.disabled.count(found.rule->hash) == 0) made.push_back(MakeFinding(event, found));
    }
    if (made.empty()) return;
    {
        std::lock_guard lock(mutex_);
        for (RuleFinding& finding : made) {
            const bool wanted = finding.told || finding.action != detect::ResponseAction::kAlert;
            const bool stops = finding.action != detect::ResponseAction::kAlert && finding.action != detect::ResponseAction::kDeny;
            const bool fits = findings_.size() < kMaxFindings + (stops ? kMaxStops : 0);
            if (!finding.told || !fits) {
                ++missed_[event.sandbox().id()].findings;
                ++counters_.untold_findings;
            }
            if (wanted && fits) findings_.push_back(std::move(finding));
        }
    }
    Wake();
}

RuleFinding RuleEngine::MakeFinding(const v1::Event& event, const detect::DetectedFinding& found) {
    RuleFinding out;
    *out.event.mutable_sandbox() = event.sandbox();
    if (event.has_policy()) *out.event.mutable_policy() = event.policy();
    if (event.has_process()) *out.event.mutable_process() = event.process();
    out.event.set_backend(event.backend());
    out.event.set_kind("finding");
    *out.event.mutable_finding() = found.ToProto();
    out.event.set_id(IdOf(out.event.finding()));
    out.event.mutable_finding()->set_again(event.boot_ns() != 0 && event.boot_ns() < started_ns_);
    out.event_boot_ns = event.boot_ns();
    out.told = Tell(event.sandbox().id(), *found.rule, out.event.mutable_finding());
    if (!found.rule->response) return out;
    const detect::Response& response = *found.rule->response;
    out.action = response.action;
    out.once_per = response.once_per;
    out.throttle_ns = static_cast<uint64_t>(response.throttle_ns);
    out.scope_group = response.scope_group;
    for (const auto& [operation, field] : response.deny) out.deny[operation] = LiteralOf(event, *field);
    return out;
}

// Whether this one is told singly; if so it says how many before it were not.
bool RuleEngine::Tell(const std::string& sandbox, const detect::Rule& rule, v1::Finding* finding) {
    const uint64_t now = BootNow();
    if (buckets_.size() >= kMaxBuckets) {
        absl::erase_if(buckets_, [now](const auto& entry) { return entry.second.full_at_ns <= now; });
        if (buckets_.size() >= kMaxBuckets) buckets_.clear();
    }
    Bucket& bucket = buckets_[absl::StrCat(sandbox, " ", rule.Ident())];
    const uint64_t full_at = std::max(bucket.full_at_ns, now) + kFindingEveryNs;
    if (full_at - now > kFindingBurst * kFindingEveryNs) return ++bucket.held, false;
    bucket.full_at_ns = full_at;
    if (bucket.held > 0) {
        finding->set_detail(absl::StrCat(finding->detail(), finding->detail().empty() ? "" : "; ",
                                         std::exchange(bucket.held, 0), " more like it before it"));
    }
    return true;
}

}  // namespace stockade::cmd
