// What `stockade rules ...` does, apart from flags: each function fills standard output and standard error
// and returns the exit status: 0 ok, 1 findings, 2 cannot do what was asked. None needs root.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/detect/parse.h"

namespace stockade::cmd {

inline constexpr int kRulesOk = 0;
inline constexpr int kRulesFindings = 1;
inline constexpr int kRulesUsage = 2;

// Of a directory of rules, so that a wrong path (/) ends.
inline constexpr size_t kMaxRuleFiles = 20'000;

struct RulesArgs {
    std::vector<std::string> paths;        // files, and directories of *.yaml and *.yml
    std::vector<std::string> policies;     // check: whose `record:` must not starve the rules; files or names
    std::vector<std::string> policy_dirs;  // where names are looked for
    std::string events;                    // replay, explain: a file of JSON lines, or -
    std::string pcap;                      // replay: a capture in the place of events
    std::string rule;                      // explain: id, name or title
    std::string junit;                     // test: a file to write beside the TAP
    bool json = false;
    bool strict = false;  // check: warnings are findings
    bool timing = false;  // replay: what each rule costs
};

struct RulesOutput {
    std::string out;
    std::string err;
};

// The files of all paths, in order; a directory's by name, but those of policies and the like that lie there:
// io.err says how many.
StatusOr<std::vector<policy::SourceFile>> ReadRuleFiles(const std::vector<std::string>& paths,
                                                        RulesOutput& io);

int RulesCheck(const RulesArgs& args, RulesOutput& io);
int RulesTest(const RulesArgs& args, RulesOutput& io);
int RulesList(const RulesArgs& args, RulesOutput& io);
int RulesReplay(const RulesArgs& args, RulesOutput& io);
int RulesExplain(const RulesArgs& args, RulesOutput& io);

// For the functions above: nullopt, with the errors in io.err, where the rules cannot be used.
std::optional<std::vector<detect::Rule>> UsableRules(const RulesArgs& args, RulesOutput& io);

}  // namespace stockade::cmd
