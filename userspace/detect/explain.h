// Which part of a rule held for an event, which did not, and with what values.
#pragma once

#include <string>
#include <vector>

#include "userspace/detect/rule.h"
#include "userspace/detect/truth.h"
#include "userspace/detect/view.h"

namespace stockade::detect {

struct Explanation {
    std::string what{};   // "selection", "all of", "Image|endswith: /bash"
    std::string value{};  // of a predicate: what the event has; holes are shown as <unknown>
    Truth truth = Truth::kNo;
    std::vector<Explanation> parts{};
};

// Not for correlations: those are about many events. A wrong source is the only part then.
Explanation Explain(const Rule& rule, const v1::Event& event);
absl::string_view TruthName(Truth truth);  // yes, no, undecidable

}  // namespace stockade::detect
