// What a predicate or an expression answers for one event.
#pragma once

#include "userspace/detect/rule.h"
#include "userspace/detect/truth.h"
#include "userspace/detect/view.h"

namespace stockade::detect {

Truth Evaluate(const Predicate& atom, EventView& view);
// Every part of it, whether it matters or not: for explanations. Hot paths have RuleSet.
Truth Evaluate(const Expr& expr, const std::vector<Predicate>& atoms, EventView& view);

}  // namespace stockade::detect
