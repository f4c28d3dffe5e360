// Events in, findings out: the seam between the event path and the rules.
//
//   Detector detector(std::move(parsed.rules));
//   for (const DetectedFinding& finding : detector.OnEvent(event)) ...
//
// One thread. It does no I/O and acts on nothing: what `response` asks for is carried in the finding, and
// whoever calls does it. Events must come before they are redacted; what is cut or redacted is undecidable,
// which is no finding, and counted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "userspace/detect/correlate.h"
#include "userspace/detect/rule.h"
#include "userspace/detect/ruleset.h"

namespace stockade::detect {

struct DetectedFinding {
    const Rule* rule = nullptr;  // of the detector
    std::string group{};         // of a correlation
    uint64_t count = 0;          // of a correlation: what was compared
    std::vector<std::string> evidence{};
    // As an event says it: rule, title, severity, evidence, detail.
    v1::Finding ToProto() const;
};

class Detector {
  public:
    struct Counters {
        uint64_t events = 0;
        uint64_t findings = 0;
        uint64_t undecidable = 0;
    };

    explicit Detector(std::vector<Rule> rules, const RuleSet::Options& options = {},
                      const CorrelatorOptions& bounds = {});
    ~Detector();

    std::vector<DetectedFinding> OnEvent(const v1::Event& event);
    // Places of rules that the last event left undecidable.
    const std::vector<size_t>& undecided() const { return undecided_; }

    const std::vector<Rule>& rules() const { return set_->rules(); }
    const Counters& counters() const { return counters_; }
    const Correlator::Counters& correlation_counters() const { return correlator_->counters(); }
    size_t correlation_groups() const { return correlator_->groups(); }
    size_t correlation_events() const { return correlator_->events(); }
    const RuleSet::Counters& match_counters() const { return set_->counters(); }
    size_t scanner_bytes() const { return set_->scanner_bytes(); }
    // A reload: the state of correlations that did not change goes on.
    void Adopt(Detector& before) { correlator_->Adopt(*before.correlator_); }

  private:
    void Add(size_t rule, DetectedFinding finding, std::vector<DetectedFinding>* out);

    std::unique_ptr<RuleSet> set_;
    std::unique_ptr<Correlator> correlator_;
    Counters counters_;
    std::unique_ptr<EventView> view_;
    std::vector<Hit> hits_;
    std::vector<CorrelationHit> correlated_;
    std::vector<size_t> undecided_;
};

}  // namespace stockade::detect
