#include "userspace/detect/detector.h"

#include "absl/strings/str_cat.h"

namespace stockade::detect {

v1::Finding DetectedFinding::ToProto() const {
    v1::Finding finding;
    finding.set_rule(rule->Ident());
    finding.set_title(rule->title);
    finding.set_severity(std::string(SeverityName(rule->level)));
    for (const std::string& id : evidence) finding.add_evidence(id);
    finding.set_hash(rule->hash);
    for (const std::string& tag : rule->tags) finding.add_tags(tag);
    if (rule->correlation)
        finding.set_detail(absl::StrCat(count, " in ", rule->correlation->timespan_ns / 1'000'000'000, " s, group ", group));
    return finding;
}

Detector::Detector(std::vector<Rule> rules, const RuleSet::Options& options, const CorrelatorOptions& bounds)
    : set_(RuleSet::Create(std::move(rules), options)),
      correlator_(std::make_unique<Correlator>(set_->rules(), bounds)) {}

Detector::~Detector() = default;

std::vector<DetectedFinding> Detector::OnEvent(const v1::Event& event) {
    ++counters_.events;
    hits_.clear();
    correlated_.clear();
    undecided_.clear();
    if (view_ == nullptr) {
        view_ = std::make_unique<EventView>(event);
    } else {
        view_->Reset(event);
    }
    EventView& view = *view_;
    set_->Match(view, &hits_);
    std::vector<DetectedFinding> findings;
    for (const Hit& hit : hits_) {
        if (hit.truth == Truth::kUndecidable) {
            ++counters_.undecidable;
            undecided_.push_back(hit.rule);
            continue;
        }
        correlator_->OnMatch(hit.rule, view, &correlated_);
        if (!correlator_->IsSilent(hit.rule))
            Add(hit.rule, {.count = 1, .evidence = {event.id()}}, &findings);
    }
    for (CorrelationHit& hit : correlated_) {
        if (correlator_->IsSilent(hit.rule)) continue;
        Add(hit.rule,
            {.group = std::move(hit.group), .count = hit.count, .evidence = std::move(hit.evidence)},
            &findings);
    }
    return findings;
}

void Detector::Add(size_t rule, DetectedFinding finding, std::vector<DetectedFinding>* out) {
    finding.rule = &set_->rules()[rule];
    ++counters_.findings;
    out->push_back(std::move(finding));
}

}  // namespace stockade::detect
