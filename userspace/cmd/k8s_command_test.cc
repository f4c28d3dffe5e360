#include "userspace/cmd/k8s_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "userspace/k8s/doctor.h"

namespace stockade::cmd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class K8sCommand : public testing::Test {
  protected:
    K8sCommand() {
        char path[] = "/tmp/stockade-k8s.XXXXXX";
        folder_ = mkdtemp(path);
    }
    ~K8sCommand() override { std::filesystem::remove_all(folder_); }

    std::string Write(const std::string& name, const std::string& text) {
        const std::filesystem::path path = folder_ + "/" + name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
        return path;
    }
    // The exit status; what was said is in out_ and err_.
    int Run(std::vector<std::string> words) {
        CLI::App app("", "stockade");
        int code = -1;
        AddK8sCommand(app, code);
        words.insert(words.begin(), {"k8s", "doctor"});
        std::reverse(words.begin(), words.end());
        testing::internal::CaptureStdout();
        testing::internal::CaptureStderr();
        app.parse(words);
        out_ = testing::internal::GetCapturedStdout();
        err_ = testing::internal::GetCapturedStderr();
        return code;
    }
    std::string folder_, out_, err_;
};

constexpr char kNode[] = "apiVersion: v1\nkind: Node\nmetadata: {name: old}\nstatus: {nodeInfo: {kernelVersion: 5.4.0}}\n";
constexpr char kAgent[] = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a, namespace: stockade}\n"
                          "spec: {template: {spec: {containers: [{command: [/usr/bin/stockaded]}]}}}\n";

TEST_F(K8sCommand, ReadsFoldersToTheirDepth) {
    Write("a/b/node.yaml", kNode);
    Write("agent.yml", kAgent);
    Write("c.toml", "version = 3\n");
    Write("README.md", "not: looked at");
    Write("values.yaml", "image: x\n");
    EXPECT_EQ(Run({folder_}), 1);
    EXPECT_THAT(out_, HasSubstr("node-kernel"));
    EXPECT_THAT(out_, HasSubstr("Node old"));
    EXPECT_THAT(out_, HasSubstr("plugin-not-required"));
    EXPECT_THAT(out_, Not(HasSubstr("agent-absent")));
    EXPECT_THAT(out_, HasSubstr("2 objects, 0 sandbox pods or templates: not enforceable\n"));
    EXPECT_THAT(out_, HasSubstr("1 documents are no Kubernetes objects, first "));
    EXPECT_EQ(err_, "");
}

TEST_F(K8sCommand, SaysItInJson) {
    EXPECT_EQ(Run({Write("node.yaml", kNode), "-o", "json"}), 1);
    EXPECT_THAT(out_, HasSubstr(R"({"enforceable":false,"objects":1,"sandbox_pods":0,"findings":[{"severity":"unenforceable",)"));
    EXPECT_THAT(out_, HasSubstr(R"("check":"node-kernel","object":"Node old","what":"kernel 5.4.0 is older than 6.1)"));
}

TEST_F(K8sCommand, NamesOfOthersCannotWriteToATerminal) {
    Run({Write("node.json", "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"a\\u001b[2Jb\\nunenforceable x\"}}")});
    EXPECT_THAT(out_, Not(HasSubstr("\x1b")));
    EXPECT_THAT(out_, Not(HasSubstr("\nunenforceable x")));
}

TEST_F(K8sCommand, WhatIsUnknownIsAnErrorOnlyWhereThatIsAsked) {
    std::string policies;
    for (const std::string& policy : k8s::ShippedPolicies()) {
        absl::StrAppend(&policies, "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: stockade-", policy,
                        "-native}\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n"
                        "metadata: {name: b}\nspec: {validationActions: [Deny], policyName: stockade-", policy, "-native}\n---\n");
    }
    Write("policies.yaml", policies);
    Write("agent.yaml", kAgent);
    EXPECT_EQ(Run({folder_}), 0) << out_;
    EXPECT_THAT(out_, HasSubstr("node-unseen"));
    EXPECT_THAT(out_, HasSubstr("enforceable by what objects say"));
    EXPECT_EQ(Run({folder_, "--strict"}), 1);
    Write("node.yaml", kNode);
    EXPECT_EQ(Run({folder_}), 1);
}

TEST_F(K8sCommand, WhatCannotBeReadIsItsOwnStatus) {
    EXPECT_EQ(Run({folder_ + "/none"}), 125);
    EXPECT_THAT(err_, HasSubstr("/none"));
    EXPECT_EQ(Run({folder_}), 125);
    EXPECT_THAT(err_, HasSubstr("no .yaml, .yml, .json or .toml in it"));
    EXPECT_EQ(Run({Write("values.yaml", "a: 1\n")}), 125);
    EXPECT_THAT(err_, HasSubstr("no Kubernetes object"));
    EXPECT_EQ(Run({Write("template.yaml", "kind: {{ .Values.kind }\n")}), 125);
    EXPECT_THAT(err_, HasSubstr("template.yaml:1"));
    EXPECT_EQ(Run({Write("c.toml", "[plugins\n")}), 125);
    EXPECT_THAT(err_, HasSubstr("c.toml:1"));
    EXPECT_EQ(out_, "");
}

}  // namespace
}  // namespace stockade::cmd
