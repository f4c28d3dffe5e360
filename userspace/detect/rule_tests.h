// Runs the `tests:` of rules: each rule by itself, with those that it is built on.
#pragma once

#include <string>
#include <vector>

#include "userspace/detect/rule.h"

namespace stockade::detect {

struct TestResult {
    size_t rule = 0;     // place in the list
    std::string name{};  // "fires 1", or with the sample's own name
    bool ok = false;
    std::string why{};  // of a failure
    Position at{};
};

std::vector<TestResult> RunTests(const std::vector<Rule>& rules);
// Of one rule, for those that change it in between.
std::vector<TestResult> RunTestsOf(const std::vector<Rule>& rules, size_t rule);

}  // namespace stockade::detect
