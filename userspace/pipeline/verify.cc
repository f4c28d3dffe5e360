#include "userspace/pipeline/verify.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/model/json.h"
#include "userspace/pipeline/export_chain.h"

namespace stockade::pipeline {
namespace {

void Fault(ChainReport& report, uint64_t* counter, uint64_t seq, uint64_t count = 1) {
    if (counter) *counter += count;
    if (report.first_fault == 0 || seq < report.first_fault) report.first_fault = seq;
}

}  // namespace

Status Verifier::AddLine(absl::string_view line) {
    if (line.empty()) return absl::OkStatus();
    StatusOr<v1::Event> event = model::FromJsonLine(line);
    if (!event.ok()) {
        ++bad_lines_;
        return event.status();
    }
    return Add(*event);
}

Status Verifier::Add(const v1::Event& event) {
    const auto name = std::make_pair(event.node(), event.sandbox().id());
    if (chains_.size() >= kMaxChains && chains_.count(name) == 0) {
        return absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxChains, " sandboxes"));
    }
    Chain& chain = chains_[name];
    ChainReport& report = chain.report;
    const uint64_t seq = event.export_seq();
    if (seq == 0 || event.chain().empty()) {
        Fault(report, &report.unnumbered, seq);
        return absl::OkStatus();
    }
    if (const auto there = chain.at.find(seq); there != chain.at.end()) {
        // The chain covers the content, once it fits: the same chain over another content is broken.
        if (there->second != event.chain())
            Fault(report, &report.conflicting, seq);
        else
            ++report.repeated;
        return absl::OkStatus();
    }
    if (std::exchange(chain.source, source_) != source_) chain.source_last = 0;
    if (seq < chain.source_last) Fault(report, &report.out_of_order, seq);
    chain.source_last = std::max(chain.source_last, seq);
    report.last = std::max(report.last, seq);
    ++report.events;
    chain.at[seq] = event.chain();
    if (event.has_lost()) {
        for (const v1::LostRange& range : event.lost().exports()) chain.lost[range.first()] = range;
        if (event.lost().exports_size() == 0) report.lost_records += event.lost().count();
    }
    if (event.has_seal()) chain.seals[seq] = event;
    Enter(chain, event);
    if (seq == 1) {
        Check(chain, event, "");
    } else if (const auto before = chain.at.find(seq - 1); before != chain.at.end()) {
        Check(chain, event, before->second);
    } else {
        if (++pending_ > kMaxPending)
            return absl::ResourceExhaustedError(
                absl::StrCat("more than ", kMaxPending, " events behind gaps"));
        chain.pending[seq] = event;
    }
    if (const auto next = chain.pending.find(seq + 1); next != chain.pending.end()) {
        Check(chain, next->second, event.chain());
        chain.pending.erase(next);
        --pending_;
    }
    return absl::OkStatus();
}

// For what the kernel numbered and the summary counts.
void Verifier::Enter(Chain& chain, const v1::Event& event) {
    if (event.kernel_seq() != 0) chain.kernel.push_back(event.kernel_seq());
    if (IsLeftOut(event))
        chain.left_out += event.repeat().count();
    else if (event.has_repeat())
        chain.repeats += event.repeat().count();
    if (event.has_summary()) {
        chain.summary = event.summary();
        chain.summary_seq = event.export_seq();
    } else if (!IsOfTheSpool(event)) {
        chain.kinds[event.kind()].push_back(event.export_seq());
    } else if (event.has_lost() && event.lost().exports_size() == 0) {
        chain.lost_in_spool += event.lost().count();
    }
}

void Verifier::CheckKernel(Chain& chain) {
    ChainReport& report = chain.report;
    // The node's own events are those of sandboxes that nobody knows any more, too.
    if (report.sandbox.empty() || chain.kernel.empty()) return;
    std::sort(chain.kernel.begin(), chain.kernel.end());
    const auto end = std::unique(chain.kernel.begin(), chain.kernel.end());
    const uint64_t distinct = static_cast<uint64_t>(end - chain.kernel.begin());
    report.twice = chain.kernel.size() - distinct;
    report.suppressed = std::max(chain.repeats, chain.summary.suppressed());
    const uint64_t missing = *(end - 1) - distinct;
    // What is missing by its export_seq, told or not, may be any of them.
    const uint64_t known =
        report.suppressed + chain.left_out + report.lost_records + report.lost + report.missing;
    report.unexplained = missing - std::min(missing, known);
}

void Verifier::CheckSummary(Chain& chain) {
    ChainReport& report = chain.report;
    uint64_t short_of = 0;
    for (const v1::KindCount& kind : chain.summary.kinds()) {
        const std::vector<uint64_t>& seqs = chain.kinds[kind.kind()];
        const uint64_t before = static_cast<uint64_t>(
            std::count_if(seqs.begin(), seqs.end(), [&](uint64_t seq) { return seq < chain.summary_seq; }));
        short_of += kind.events() - std::min<uint64_t>(kind.events(), before);
    }
    report.short_of_summary =
        short_of - std::min(short_of, report.lost + report.missing + chain.lost_in_spool);
}

void Verifier::Check(Chain& chain, const v1::Event& event, absl::string_view before) {
    if (ChainAfter(before, event) != event.chain())
        Fault(chain.report, &chain.report.broken, event.export_seq());
}

std::vector<ChainReport> Verifier::Finish() {
    std::vector<ChainReport> reports;
    for (auto& [name, chain] : chains_) {
        chain.report.node = name.first;
        chain.report.sandbox = name.second;
        Close(chain);
        CheckSeals(chain);
        CheckKernel(chain);
        CheckSummary(chain);
        reports.push_back(chain.report);
    }
    return reports;
}

// Gaps, beside what was told of them.
void Verifier::Close(Chain& chain) {
    ChainReport& report = chain.report;
    std::vector<uint64_t> there;
    there.reserve(chain.at.size());
    for (const auto& [seq, text] : chain.at) there.push_back(seq);
    std::sort(there.begin(), there.end());
    uint64_t next = 1;
    for (const uint64_t seq : there) {
        std::string before;
        bool told = false;
        while (next < seq) {
            // The range that holds `next`, if any.
            auto range = chain.lost.upper_bound(next);
            const bool covered = range != chain.lost.begin() && (--range)->second.last() >= next;
            const auto after = chain.lost.upper_bound(next);
            const uint64_t end = covered ? std::min(range->second.last() + 1, seq)
                                         : std::min(after == chain.lost.end() ? seq : after->first, seq);
            told = covered;
            if (covered) {
                report.lost += end - next;
                before = range->second.chain();
            } else {
                Fault(report, &report.missing, next, end - next);
            }
            next = end;
        }
        // Told with the chain at its end, the next is checked by it; without it nothing can be said.
        const auto pending = chain.pending.find(seq);
        if (pending != chain.pending.end() && told && !before.empty()) Check(chain, pending->second, before);
        next = seq + 1;
    }
}

void Verifier::CheckSeals(Chain& chain) {
    ChainReport& report = chain.report;
    for (const auto& [seq, event] : chain.seals) {
        const v1::Seal& seal = event.seal();
        const auto before = chain.at.find(seq - 1);
        const std::string text = SealText(report.node, report.sandbox, seq, seal.before());
        const bool fits =
            seq == 1 ? seal.before().empty() : before == chain.at.end() || before->second == seal.before();
        const bool known = options_.key.empty() || seal.key() == options_.key;
        if (!fits || !known || !NodeKey::Verify(seal.key(), text, seal.signature())) {
            report.bad_seal = true;
            Fault(report, nullptr, seq);
        }
        report.key = seal.key();
        report.sealed = seq == report.last;
    }
}

}  // namespace stockade::pipeline
