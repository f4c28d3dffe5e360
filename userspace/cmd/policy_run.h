// What `stockade policy ...` does, apart from flags: each function fills standard output and
// standard error and returns the exit status: 0 ok, 1 findings, 2 cannot do what was asked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "userspace/policy/document.h"
#include "userspace/policy/resolve.h"

namespace stockade::cmd {

inline constexpr int kPolicyOk = 0;
inline constexpr int kPolicyFindings = 1;
inline constexpr int kPolicyUsage = 2;

struct PolicyArgs {
    std::vector<std::string> files;  // check, test; diff: exactly two; learn: events
    std::string policy;              // explain: a file or a name; learn: the name of what is proposed
    std::string session;             // learn: of which session or sandbox; empty = of all
    std::vector<std::string> with;   // files that `extends` may name
    std::vector<std::string> dirs;   // whose policies `extends` may name: those of the agent
    std::string root = "/";  // whose symbolic links are followed; empty = none are
    bool json = false;
    bool strict = false;                      // check: warnings are findings
    std::vector<policy::TestCase> questions;  // explain
};

struct PolicyOutput {
    std::string out;
    std::string err;
};

int PolicyCheck(const PolicyArgs& args, PolicyOutput& io);
int PolicyExplain(const PolicyArgs& args, PolicyOutput& io);
int PolicyTestCases(const PolicyArgs& args, PolicyOutput& io);
int PolicyDiff(const PolicyArgs& args, PolicyOutput& io);
int PolicyLearn(const PolicyArgs& args, PolicyOutput& io);

}  // namespace stockade::cmd
