#include "userspace/pipeline/sequencer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stockade::pipeline {
namespace {

// Ranges of missing numbers kept to tell a late record from a second copy. A sandbox whose
// losses are more scattered has its oldest range forgotten, and late records taken on trust.
constexpr size_t kMaxMissingRanges = 256;

}  // namespace

Sequencer::Stream& Sequencer::StreamOf(uint32_t slot, uint32_t generation) {
    std::unique_ptr<Stream>& stream = streams_[KeyOf(slot, generation)];
    if (!stream) {
        stream = std::make_unique<Stream>();
        stream->slot = slot;
        stream->generation = generation;
    }
    return *stream;
}

void Sequencer::Track(uint32_t slot, uint32_t generation, uint64_t first_seq) {
    Stream& stream = StreamOf(slot, generation);
    stream.tracked = true;
    if (stream.next == 0) stream.next = first_seq;
    Advance(stream);
}

void Sequencer::Resume(uint32_t slot, uint32_t generation, const EarlierNumbers& earlier) {
    Stream& stream = StreamOf(slot, generation);
    stream.tracked = true;
    stream.seen = earlier.seen;
    stream.left_out_boot_ns = earlier.left_out_boot_ns;
    uint64_t holes = earlier.seen.closed();  // what explains those is in the same sums
    for (const auto& [first, last] : earlier.seen.Holes()) {
        stream.missing[first] = last;
        holes += last - first + 1;
        if (stream.unexplained_first == 0) stream.unexplained_first = first;
        stream.unexplained_last = last;
    }
    holes -= std::min(holes, earlier.told);
    stream.repeats = earlier.repeats;
    stream.explained = std::min(earlier.repeats, holes);
    stream.unexplained = holes - stream.explained;
    if (stream.unexplained > 0) active_.insert(KeyOf(slot, generation));
}

void Sequencer::Reconcile(uint32_t slot, uint32_t generation, uint64_t suppressed) {
    const auto it = streams_.find(KeyOf(slot, generation));
    if (it == streams_.end()) return;
    it->second->suppressed = std::max(it->second->suppressed, suppressed);
    Explain(*it->second);
}

void Sequencer::Add(uint32_t slot, uint32_t generation, std::unique_ptr<v1::Event> event) {
    Stream& stream = StreamOf(slot, generation);
    if (!stream.tracked) active_.insert(KeyOf(slot, generation));
    const uint64_t seq = event->kernel_seq();
    if (stream.sandbox.id().empty()) {
        stream.sandbox = event->sandbox();
        stream.node = event->node();
    }
    // One that comes again after a start is in the books that were taken over.
    if (event->has_repeat() && !stream.seen.Contains(seq)) {
        const uint64_t count = event->repeat().count();
        stream.repeats += std::min(count, ~stream.repeats);
        Explain(stream);
    }
    // The kernel gives 0 when it found no state to count in: nothing to be in order with.
    if (seq == 0) return sink_(*event);
    const uint64_t unexplained = stream.unexplained;
    const bool known = seq <= stream.seen.last() && (TakeLate(stream, seq) || stream.seen.Contains(seq));
    // Its number was not missing: it is in none of what was stored, and in the count of what was left out.
    if (known && event->dns().quiet() && event->boot_ns() <= stream.left_out_boot_ns) stream.unexplained = unexplained;
    if (stream.next == 0 || seq > stream.next) return Wait(stream, seq, std::move(event));
    if (seq < stream.next) {
        if (!known && seq >= stream.unknown_before && !TakeLate(stream, seq)) {
            ++counters_.duplicate;
            return;
        }
        ++counters_.late;
        return sink_(*event);
    }
    ++stream.next;
    sink_(*event);
    Advance(stream);
}

void Sequencer::Wait(Stream& stream, uint64_t seq, std::unique_ptr<v1::Event> event) {
    if (!stream.waiting.emplace(seq, Waiting{passes_, std::move(event)}).second) {
        ++counters_.duplicate;
        return;
    }
    ++counters_.reordered;
    ++waiting_all_;
    ++waiting_since_[passes_];
    active_.insert(KeyOf(stream.slot, stream.generation));
    if (stream.waiting.size() > options_.max_waiting || waiting_all_ > options_.max_waiting_all) {
        ++counters_.early;
        GiveUp(stream);
    } else if (stream.seen.last() > 0) {
        Advance(stream);  // the numbers before it may be an earlier process's
    }
}

// Hands on what is due, up to the next gap.
void Sequencer::Advance(Stream& stream) {
    if (stream.next == 0) return;
    bool moved = false;
    while (!stream.waiting.empty()) {
        const uint64_t first = stream.waiting.begin()->first;
        if (const uint64_t end = stream.seen.EndOf(stream.next); end != 0 && first > stream.next)
            stream.next = std::min(first, end + 1);
        if (first > stream.next) break;
        auto node = stream.waiting.extract(stream.waiting.begin());
        --waiting_all_;
        const auto since = waiting_since_.find(node.mapped().passes);
        if (--since->second == 0) waiting_since_.erase(since);
        moved = true;
        if (node.key() < stream.next) {
            ++counters_.duplicate;
            continue;
        }
        ++stream.next;
        sink_(*node.mapped().event);
    }
    if (moved || stream.waiting.empty()) stream.gap_since = 0;
}

void Sequencer::GiveUp(Stream& stream) {
    const uint64_t first = stream.waiting.begin()->first;
    if (stream.next != 0 || stream.seen.last() > 0) {
        Miss(stream, stream.next, first - 1);
    } else {
        stream.unknown_before = first;
    }
    stream.next = first;
    Advance(stream);
}

void Sequencer::Miss(Stream& stream, uint64_t first, uint64_t last) {
    first = std::max(first, stream.seen.last() + 1);  // those below are known, or missing already
    if (last < first) return;
    stream.missing[first] = last;
    if (stream.missing.size() > kMaxMissingRanges) {
        stream.forgotten = stream.missing.begin()->second;
        stream.missing.erase(stream.missing.begin());
    }
    if (stream.unexplained == 0) {
        stream.unexplained_since = now_;
        stream.unexplained_first = first;
    }
    stream.unexplained_last = last;
    stream.unexplained += last - first + 1;
    active_.insert(KeyOf(stream.slot, stream.generation));
    Explain(stream);
}

bool Sequencer::TakeLate(Stream& stream, uint64_t seq) {
    if (seq <= stream.forgotten) return true;
    auto it = stream.missing.upper_bound(seq);
    if (it == stream.missing.begin()) return false;
    --it;
    const auto [first, last] = *it;
    if (seq > last) return false;
    stream.missing.erase(it);
    if (first < seq) stream.missing[first] = seq - 1;
    if (seq < last) stream.missing[seq + 1] = last;
    if (stream.unexplained > 0) --stream.unexplained;
    return true;
}

void Sequencer::Explain(Stream& stream) {
    const uint64_t known = std::max(stream.repeats, stream.suppressed);
    const uint64_t use = std::min(known - stream.explained, stream.unexplained);
    stream.explained += use;
    stream.unexplained -= use;
    counters_.suppressed += use;
}

void Sequencer::ReportLost(Stream& stream) {
    if (stream.unexplained == 0) return;
    if (ask_suppressed_) {
        stream.suppressed = std::max(stream.suppressed, ask_suppressed_(stream.slot, stream.generation));
        Explain(stream);
        if (stream.unexplained == 0) return;
    }
    v1::Event event;
    event.set_kind("lost");
    event.set_node(stream.node);
    event.set_boot_ns(now_);
    *event.mutable_sandbox() = stream.sandbox;
    if (stream.sandbox.id().empty()) {
        event.mutable_sandbox()->set_slot(stream.slot);
        event.mutable_sandbox()->set_generation(stream.generation);
    }
    v1::Lost* lost = event.mutable_lost();
    lost->set_count(stream.unexplained);
    lost->set_stage("ring");
    lost->set_cause("sequence gap");
    lost->set_first_seq(stream.unexplained_first);
    lost->set_last_seq(stream.unexplained_last);
    counters_.lost += stream.unexplained;
    stream.unexplained = 0;
    sink_(event);
}

void Sequencer::OnDrained(uint64_t now_boot_ns) {
    now_ = now_boot_ns;
    ++passes_;
    std::vector<Key> done;
    // A copy: the sink may make other streams active.
    const std::vector<Key> active(active_.begin(), active_.end());
    for (Key key : active) {
        const auto it = streams_.find(key);
        if (it == streams_.end()) {
            done.push_back(key);
            continue;
        }
        Stream& stream = *it->second;
        if (!stream.waiting.empty()) {
            if (stream.gap_since == 0) {
                stream.gap_since = now_;
                stream.gap_drains = 0;
            } else if (++stream.gap_drains >= options_.drains &&
                       now_ - stream.gap_since >= options_.gap_ns) {
                GiveUp(stream);
            }
        }
        if (stream.unexplained > 0 && stream.unexplained_since == 0) stream.unexplained_since = now_;
        if (stream.unexplained > 0 && now_ - stream.unexplained_since >= options_.explain_ns) {
            ReportLost(stream);
        }
        if (stream.waiting.empty() && stream.unexplained == 0) done.push_back(key);
    }
    for (Key key : done) {
        active_.erase(key);
        const auto it = streams_.find(key);
        if (it != streams_.end() && !it->second->tracked) streams_.erase(it);
    }
}

void Sequencer::Finish(uint32_t slot, uint32_t generation, uint64_t last_seq) {
    const auto it = streams_.find(KeyOf(slot, generation));
    if (it == streams_.end()) return;
    Stream& stream = *it->second;
    while (!stream.waiting.empty()) GiveUp(stream);
    if ((stream.next != 0 || stream.seen.last() > 0) && last_seq >= stream.next) Miss(stream, stream.next, last_seq);
    ReportLost(stream);
    active_.erase(it->first);
    streams_.erase(it);
}

}  // namespace stockade::pipeline
