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
// As many as can wait in the sequencer. Beyond it, as duplicates leave theirs behind, the rules see some as redacted.
constexpr size_t kMaxOriginals = 8192;

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

}  // namespace

EventPath::EventPath(Options options)
    : node_(options.node),
      lookup_(options.lookup),
      decoder_({.node = options.node,
                .wall_offset_ns = options.wall_offset_ns,
                .lookup = options.lookup,
                .redactor = options.redactor}),
      sequencer_(
          options.sequence, [this](v1::Event& event) { Emit(event, TakeOriginal(event.id())); }, options.suppressed),
      tree_(options.tree),
      names_(options.names),
      summary_(options.summary) {}

void EventPath::AddObserver(Observer observer) { observers_.push_back(std::move(observer)); }

void EventPath::AddUrgentObserver(Observer observer) { urgent_.push_back(std::move(observer)); }

void EventPath::Track(uint32_t slot, uint32_t generation, uint64_t first_seq) {
    {
        std::lock_guard lock(mutex_);
        sequencer_.Track(slot, generation, first_seq);
    }
    Deliver();
}

void EventPath::Resume(uint32_t slot, uint32_t generation, const EarlierNumbers& earlier) {
    std::lock_guard lock(mutex_);
    sequencer_.Resume(slot, generation, earlier);
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
        names_.Forget(sandbox_id);
    }
    Deliver();
}

void EventPath::LearnName(const std::string& sandbox_id, const std::string& address, const std::string& name) {
    std::lock_guard lock(mutex_);
    names_.Learn(sandbox_id, address, name, BootNow());
}

void EventPath::OnRecord(std::span<const uint8_t> record) {
    auto event = std::make_unique<v1::Event>();
    std::unique_ptr<v1::Event> original;
    if (!decoder_.Decode(record, event.get(), &original).ok()) return;  // counted there; a gap will show
    if (IsUrgent(*event)) {
        for (const Observer& observer : urgent_) observer(*event);
    }
    sk_head head;
    memcpy(&head, record.data(), sizeof(head));  // long enough: it was decoded
    {
        std::lock_guard lock(mutex_);
        if (original != nullptr) {
            if (originals_.size() >= kMaxOriginals) originals_.clear();
            originals_[event->id()] = std::move(original);
        }
        sequencer_.Add(head.slot, head.generation & SK_GENERATION_MASK, std::move(event));
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

uint64_t EventPath::PassesHandedOn() {
    std::lock_guard delivery(delivery_);  // whoever is at it comes to its end
    std::lock_guard lock(mutex_);
    return ready_.empty() ? sequencer_.passes_handed_on() : 0;
}

PathCounters EventPath::counters() {
    PathCounters counters;
    for (size_t i = 0; i < counters.decode.size(); ++i)
        counters.decode[i] = decoder_.count(static_cast<decode::Reason>(i));
    counters.redacted = decoder_.redactor().counts();
    std::lock_guard lock(mutex_);
    counters.sequence = sequencer_.counters();
    counters.waiting = sequencer_.waiting();
    counters.tree = tree_.counters();
    counters.processes = tree_.size();
    counters.names = names_.counters();
    counters.names_known = names_.size();
    counters.summaries_overflowed = summary_.overflowed();
    return counters;
}

void EventPath::Publish(v1::Event event) {
    std::unique_ptr<v1::Event> original;
    (void)decoder_.redactor().Redact(&event, &original);  // counted there
    {
        std::lock_guard lock(mutex_);
        if (event.boot_ns() == 0) event.set_boot_ns(BootNow());
        Emit(event, std::move(original));
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

std::unique_ptr<v1::Event> EventPath::TakeOriginal(const std::string& id) {
    if (originals_.empty()) return nullptr;
    auto node = originals_.extract(id);
    return node.empty() ? nullptr : std::move(node.mapped());
}

void EventPath::Emit(v1::Event& event, std::unique_ptr<v1::Event> original) {
    Complete(&event);
    if (original != nullptr) {
        original->set_id(event.id());
        original->set_node(event.node());
        original->set_kind(event.kind());
        original->set_boot_ns(event.boot_ns());
        *original->mutable_time() = event.time();
        if (event.has_sandbox()) *original->mutable_sandbox() = event.sandbox();
    }
    // Before the process, whose arguments need no second look.
    if (names_.Enrich(&event, original.get())) (void)decoder_.redactor().Redact(&event, &original);
    tree_.Enrich(&event, &original);
    summary_.Add(event);
    ready_.push_back({std::make_shared<const v1::Event>(std::move(event)), std::move(original)});
}

// One thread at a time hands on; an observer that publishes finds it at work already.
void EventPath::Deliver() {
    std::lock_guard delivery(delivery_);
    if (delivering_) return;
    delivering_ = true;
    for (;;) {
        Ready ready;
        {
            std::lock_guard lock(mutex_);
            if (ready_.empty()) break;
            ready = std::move(ready_.front());
            ready_.pop_front();
        }
        for (const RawObserver& observer : raw_) observer(ready.original ? ready.original : ready.event);
        for (const Observer& observer : observers_) observer(*ready.event);
    }
    delivering_ = false;
}

}  // namespace stockade::pipeline
