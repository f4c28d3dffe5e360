#include "userspace/pipeline/event_path.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bpf/wire/record.h"
#include "userspace/base/clock.h"
#include "userspace/model/reason.h"

namespace stockade::pipeline {
namespace {

constexpr uint64_t kNanos = 1'000'000'000;

// What a queue under pressure drops last. The rest is telemetry.
bool IsImportant(const v1::Event& event) {
    switch (event.payload_case()) {
        case v1::Event::kExec:
        case v1::Event::kExit:
        case v1::Event::kFork:
        case v1::Event::kFile:
        case v1::Event::kNet: return model::IsRefusal(event);
        default: return true;
    }
}

bool IsUrgent(const v1::Event& event) {
    return event.verdict() == "kill-sandbox" ||
           (event.has_lifecycle() && event.lifecycle().op() == "condemned");
}

// The name of the payload that is set, from the descriptor.
std::string PayloadName(const v1::Event& event) {
    const auto* payload = v1::Event::descriptor()->FindOneofByName("payload");
    const auto* field = event.GetReflection()->GetOneofFieldDescriptor(event, payload);
    return field ? field->name() : "";
}

void Count(absl::string_view stage, absl::string_view reason, uint64_t value,
           std::vector<Counter>* out) {
    if (value != 0) out->push_back({std::string(stage), std::string(reason), value});
}

void CountQueue(const ExportQueue& queue, std::vector<Counter>* out) {
    const std::string stage = absl::StrCat("export ", queue.exporter().name());
    const ExportQueue::Counters counters = queue.counters();
    Count(stage, "queue full, telemetry", counters.dropped_telemetry, out);
    Count(stage, "queue full, important", counters.dropped_important, out);
    const exporters::ExporterCounters own = queue.exporter().counters();
    Count(stage, "delivered", own.delivered, out);
    for (const auto& [reason, value] : own.dropped) Count(stage, reason, value, out);
}

}  // namespace

EventPath::EventPath(Options options)
    : node_(options.node),
      lookup_(options.lookup),
      decoder_({.node = options.node,
                .wall_offset_ns = options.wall_offset_ns,
                .lookup = options.lookup,
                .redact = options.redact}),
      queue_options_(options.queue),
      sequencer_(options.sequence, [this](v1::Event& event) { Emit(event); }, options.suppressed),
      tree_(options.tree),
      summary_(options.summary) {}

EventPath::~EventPath() = default;

uint64_t EventPath::AddObserver(Observer observer) {
    std::lock_guard delivery(delivery_);
    std::lock_guard lock(mutex_);
    observers_[next_id_] = std::make_shared<const Observer>(std::move(observer));
    return next_id_++;
}

void EventPath::RemoveObserver(uint64_t id) {
    std::lock_guard delivery(delivery_);
    observers_.erase(id);
}

void EventPath::AddUrgentObserver(Observer observer) { urgent_.push_back(std::move(observer)); }

uint64_t EventPath::AddExporter(std::unique_ptr<exporters::Exporter> exporter, Filter filter) {
    auto added = std::make_shared<Export>();
    added->queue = std::make_unique<ExportQueue>(std::move(exporter), queue_options_);
    added->filter = std::move(filter);
    std::lock_guard delivery(delivery_);
    std::lock_guard lock(mutex_);
    exports_[next_id_] = std::move(added);
    return next_id_++;
}

Status EventPath::RemoveExporter(uint64_t id) {
    std::shared_ptr<Export> removed;
    {
        std::lock_guard delivery(delivery_);
        std::lock_guard lock(mutex_);
        const auto it = exports_.find(id);
        if (it == exports_.end()) return absl::NotFoundError(absl::StrCat("no exporter ", id));
        removed = std::move(it->second);
        exports_.erase(it);
    }
    return removed->queue->Close();
}

void EventPath::Track(uint32_t slot, uint32_t generation, uint64_t first_seq) {
    {
        std::lock_guard lock(mutex_);
        sequencer_.Track(slot, generation, first_seq);
    }
    Deliver();
}

v1::Summary EventPath::Finish(uint32_t slot, uint32_t generation, const sk_state* state) {
    const auto info = lookup_ ? lookup_(slot, generation) : nullptr;
    v1::Summary summary;
    {
        std::lock_guard lock(mutex_);
        if (state) sequencer_.Reconcile(slot, generation, state->suppressed);
        sequencer_.Finish(slot, generation, state ? state->seq : 0);
        if (info) summary = summary_.Take(info->id.str());
    }
    Deliver();
    if (state) {
        AddSections(*state, &summary);
        summary.set_suppressed(std::max<uint64_t>(summary.suppressed(), state->suppressed));
    }
    return summary;
}

void EventPath::Forget(const std::string& sandbox_id, uint32_t slot, uint32_t generation) {
    {
        std::lock_guard lock(mutex_);
        if (slot != 0) sequencer_.Finish(slot, generation, 0);
        (void)summary_.Take(sandbox_id);
    }
    Deliver();
}

v1::Summary EventPath::Peek(const std::string& sandbox_id) const {
    std::lock_guard lock(mutex_);
    return summary_.Peek(sandbox_id);
}

void EventPath::OnRecord(std::span<const uint8_t> record) {
    auto event = std::make_unique<v1::Event>();
    if (!decoder_.Decode(record, event.get()).ok()) return;  // counted there; a gap will show
    if (IsUrgent(*event)) {
        for (const Observer& observer : urgent_) observer(*event);
    }
    sk_head head;
    memcpy(&head, record.data(), sizeof(head));  // long enough: it was decoded
    {
        std::lock_guard lock(mutex_);
        sequencer_.Add(head.slot, head.generation & 0x7fffffff, std::move(event));
    }
    Deliver();
}

void EventPath::OnDrained(uint64_t now_boot_ns) {
    {
        std::lock_guard lock(mutex_);
        sequencer_.OnDrained(now_boot_ns);
    }
    Deliver();
}

void EventPath::Publish(v1::Event event) {
    {
        std::lock_guard lock(mutex_);
        if (event.boot_ns() == 0) event.set_boot_ns(BootNow());
        Emit(event);
    }
    Deliver();
}

void EventPath::Complete(v1::Event* event) {
    if (event->node().empty()) event->set_node(node_);
    if (event->kind().empty()) event->set_kind(PayloadName(*event));
    if (!event->has_time()) {
        const uint64_t wall = event->boot_ns() + decoder_.wall_offset_ns();
        event->mutable_time()->set_seconds(static_cast<int64_t>(wall / kNanos));
        event->mutable_time()->set_nanos(static_cast<int32_t>(wall % kNanos));
    }
    if (event->id().empty()) event->set_id(absl::StrCat("evt_", model::NewUlid()));
    v1::Sandbox* sandbox = event->has_sandbox() ? event->mutable_sandbox() : nullptr;
    if (!sandbox || !sandbox->id().empty() || sandbox->slot() == 0 || !lookup_) return;
    if (const auto info = lookup_(sandbox->slot(), sandbox->generation())) {
        sandbox->Clear();
        model::ToProto(*info, sandbox);
    }
}

void EventPath::Emit(v1::Event& event) {
    Complete(&event);
    tree_.Enrich(&event);
    summary_.Add(event);
    ready_.push_back(std::make_shared<const v1::Event>(std::move(event)));
}

// One thread at a time hands on; an observer that publishes finds it at work already.
void EventPath::Deliver() {
    std::lock_guard delivery(delivery_);
    if (delivering_) return;
    delivering_ = true;
    for (;;) {
        EventPtr event;
        {
            std::lock_guard lock(mutex_);
            if (ready_.empty()) break;
            event = std::move(ready_.front());
            ready_.pop_front();
        }
        HandOn(event);
    }
    delivering_ = false;
}

void EventPath::HandOn(const EventPtr& event) {
    // Copies: an observer may add and remove others.
    const auto observers = observers_;
    for (const auto& [id, observer] : observers) {
        if (observers_.count(id)) (*observer)(*event);
    }
    const bool important = IsImportant(*event);
    for (const auto& [id, target] : exports_) {
        if (!target->filter || target->filter(*event)) target->queue->Push(event, important);
    }
}

Status EventPath::Flush() {
    Deliver();
    std::vector<std::shared_ptr<Export>> targets;
    {
        std::lock_guard lock(mutex_);
        for (const auto& [id, target] : exports_) targets.push_back(target);
    }
    Status first;
    for (const auto& target : targets) first.Update(target->queue->Flush());
    return first;
}

std::vector<Counter> EventPath::Counters() const {
    std::vector<Counter> out;
    for (size_t i = 0; i < static_cast<size_t>(decode::Reason::COUNT); ++i) {
        const auto reason = static_cast<decode::Reason>(i);
        Count("decode", decode::ToString(reason), decoder_.count(reason), &out);
    }
    std::lock_guard lock(mutex_);
    const Sequencer::Counters& sequence = sequencer_.counters();
    Count("sequence", "reordered", sequence.reordered, &out);
    Count("sequence", "late", sequence.late, &out);
    Count("sequence", "duplicate", sequence.duplicate, &out);
    Count("sequence", "given up early", sequence.early, &out);
    Count("sequence", "suppressed", sequence.suppressed, &out);
    Count("sequence", "lost", sequence.lost, &out);
    const enrich::ProcessTree::Counters& tree = tree_.counters();
    Count("enrich", "evicted live process", tree.evicted_live, &out);
    Count("enrich", "unknown process", tree.unknown, &out);
    Count("summary", "too many sandboxes", summary_.overflowed(), &out);
    for (const auto& [id, target] : exports_) CountQueue(*target->queue, &out);
    return out;
}

}  // namespace stockade::pipeline
