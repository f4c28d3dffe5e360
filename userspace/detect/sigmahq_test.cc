// SigmaHQ's own rules for Linux programs, files and connections: all must load and evaluate. Their licence is not
// ours to ship under, so they are read from where STOCKADE_SIGMA_RULES says: a checkout's folder of rules.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "absl/strings/match.h"
#include "userspace/base/fd.h"
#include "userspace/detect/parse.h"
#include "userspace/detect/ruleset.h"
#include "userspace/detect/sample.h"

namespace stockade::detect {
namespace {

bool IsOurs(const std::string& text) {
    if (!absl::StrContains(text, "product: linux")) return false;
    for (const char* category : {"process_creation", "network_connection", "file_event"}) {
        if (absl::StrContains(text, std::string("category: ") + category)) return true;
    }
    return false;
}

TEST(SigmaHqTest, EveryRuleLoadsAndEvaluates) {
    const char* folder = std::getenv("STOCKADE_SIGMA_RULES");
    if (folder == nullptr) GTEST_SKIP() << "STOCKADE_SIGMA_RULES names no folder of SigmaHQ's rules";
    std::vector<policy::SourceFile> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
        if (entry.path().extension() != ".yml") continue;
        StatusOr<std::string> text = ReadFile(entry.path().string(), 1 << 20);
        ASSERT_TRUE(text.ok()) << text.status();
        if (IsOurs(*text)) files.push_back({entry.path().string(), *std::move(text)});
    }
    ASSERT_FALSE(files.empty()) << folder << " holds no rules for Linux";
    ParsedRules parsed = ParseRules(files);
    size_t warnings = 0;
    for (const Diagnostic& diagnostic : parsed.diagnostics) {
        EXPECT_NE(diagnostic.severity, policy::Severity::kError) << ToString(diagnostic);
        warnings += diagnostic.severity == policy::Severity::kWarning ? 1 : 0;
    }
    EXPECT_GE(parsed.rules.size(), files.size());
    const auto set = RuleSet::Create(parsed.rules);
    size_t hits = 0;
    for (const char* category : {"process_creation", "network_connection", "file_event"}) {
        const v1::Event event = BlankEvent({"linux", category});
        EventView view(event);
        std::vector<Hit> found;
        set->Match(view, &found);
        hits += found.size();
    }
    std::cout << files.size() << " rules loaded, " << warnings << " warnings, " << hits
              << " matches on blank events\n";
}

}  // namespace
}  // namespace stockade::detect
