// For tests of what a running agent does for what rules find: an installation whose rules are in our directory, and
// policies that allow nearly everything, so that only the rules stop something.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/tools/product.h"

namespace stockade::tests {

// A rule that a sandbox fires by opening a file of that name.
inline std::string FileRule(const std::string& name, const std::string& response) {
    return absl::StrCat("title: Rule ", name, "\nname: ", name,
                        "\nlevel: high\nlogsource: {product: linux, category: file_access}\ndetection:\n"
                        "  selection: {TargetFilename|endswith: /",
                        name, "}\n  condition: selection\n", response);
}

class RulesRespond : public ::testing::Test {
  protected:
    void SetUp() override {
        std::filesystem::create_directories(product_.Path("rules"));
        product_.Configure(absl::StrCat("rules: {dirs: [", product_.Path("rules"), "]}\n"));
        Policy("open", "");
        Policy("watched", "  mode: observe\n");
    }
    void Policy(const std::string& name, const std::string& more) {
        product_.Put(
            name + ".yaml",
            absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: ", name,
                         "}\nspec:\n", more,
                         "  exec: {allow: [/**]}\n  files: {read: [/**], write: [/tmp/**, /dev/**]}\n"
                         "  network: {allow: [{cidr: 10.0.0.0/8}]}\n"
                         "  record: {exec: all, files: all, network: all}\n"));
    }
    Ran Sh(const std::string& script, const std::string& policy = "open") {
        return product_.Run(product_.Path(policy + ".yaml"), {"/bin/sh", "-c", script});
    }
    static std::vector<Json> Of(const Ran& ran, const std::string& kind) {
        std::vector<Json> events;
        for (const Json& event : ran.events) {
            if (At(event, "kind") == kind) events.push_back(event);
        }
        return events;
    }
    static std::vector<std::string> Actions(const Ran& ran) {
        std::vector<std::string> out;
        for (const Json& event : Of(ran, "action"))
            out.push_back(absl::StrCat(At(event, "action.action"), " ", At(event, "action.result")));
        return out;
    }
    // A run of which a file in /tmp of the host's Path("out") says that it is under way.
    pid_t Long(const std::string& script, const std::string& policy = "open") {
        return product_.StartRun(product_.Path(policy + ".yaml"), {"/bin/sh", "-c", script}, "long");
    }
    std::string OnlySandbox() {
        std::string id;
        EXPECT_TRUE(Until([&] {
            const Ran ps = product_.Stockade({"ps", "-o", "json"});
            const size_t at = ps.out.find("sbx_");
            if (at == std::string::npos || !absl::StrContains(ps.out, "running")) return false;
            id = ps.out.substr(at, 30);
            return true;
        }));
        return id;
    }
    Product product_;
};

}  // namespace stockade::tests
