#include "userspace/cmd/pod_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "userspace/policy/builtin.h"

namespace stockade::cmd {
namespace {

using ::testing::HasSubstr;

class PodPolicyTest : public ::testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_pods_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        dir_ = name;
        Write("shell");
        Write("python", "  selector: {matchLabels: {tool: python}}\n");
        config_.policies = {"shell", "python"};
        container_.ref = {.name_space = "tools", .name = "t-1", .uid = "u", .container_id = "c"};
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }
    void Write(const std::string& policy, const std::string& more = "") {
        std::ofstream(dir_ + "/" + policy + ".yaml")
            << "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: " << policy << "}\nspec:\n"
            << more << "  exec: {allow: [/bin/true]}\n  files: {read: []}\n  network: {allow: []}\n";
    }
    PodPolicy Choose() {
        PolicyStore store({dir_}, "networkless");
        return ChoosePodPolicy(container_, labels_, config_, store);
    }
    void ExpectDenyAll(const PodPolicy& got, const std::string& condition, const std::string& says) {
        EXPECT_EQ(got.policy.name, policy::kDenyAll);
        EXPECT_EQ(got.condition, "Degraded/" + condition);
        EXPECT_THAT(got.note, HasSubstr(says));
    }
    std::string dir_;
    KubernetesConfig config_;
    orchestrator::PodContainer container_;
    model::Labels labels_;
};

TEST_F(PodPolicyTest, TheAnnotationComesBeforeTheSelectorAndThatBeforeTheDefault) {
    config_.namespaces["tools"] = {.policy = "networkless", .policies = {}};
    EXPECT_EQ(Choose().policy.name, "networkless");
    labels_.tool = "python";
    EXPECT_EQ(Choose().policy.name, "python");
    container_.annotations[kPolicyAnnotation] = "shell";
    const PodPolicy got = Choose();
    EXPECT_EQ(got.policy.name, "shell");
    EXPECT_EQ(got.condition, "");
}

TEST_F(PodPolicyTest, WithoutAPolicyNothingRuns) { ExpectDenyAll(Choose(), "PolicyNotFound", "pod tools/t-1 names no policy"); }

TEST_F(PodPolicyTest, TheRunDefaultIsNoPods) {
    config_.namespaces["tools"] = {};
    ExpectDenyAll(Choose(), "PolicyNotFound", "no default");
}

TEST_F(PodPolicyTest, AnUnknownNameIsNotAnyOther) {
    config_.policies = {"*"};
    config_.namespaces["tools"] = {.policy = "shell", .policies = {}};
    container_.annotations[kPolicyAnnotation] = "shel";
    ExpectDenyAll(Choose(), "PolicyNotFound", "did you mean 'shell'?");
    container_.annotations[kPolicyAnnotation] = "";
    ExpectDenyAll(Choose(), "PolicyNotFound", "is empty");
}

// What tenants write can only narrow.
TEST_F(PodPolicyTest, ATenantChoosesAmongWhatIsListedAlone) {
    config_.policies = {};
    config_.namespaces["tools"] = {.policy = "networkless", .policies = {}};
    container_.annotations[kPolicyAnnotation] = "shell";
    ExpectDenyAll(Choose(), "PolicyNotAllowed", "its annotation names shell");
    container_.annotations.clear();
    labels_.tool = "python";
    ExpectDenyAll(Choose(), "PolicyNotAllowed", "its labels select python");
    config_.namespaces["tools"].policies = {"python"};
    EXPECT_EQ(Choose().policy.name, "python");
    container_.annotations[kPolicyAnnotation] = "networkless";
    EXPECT_EQ(Choose().policy.name, "networkless") << "the namespace's own";
    container_.annotations[kPolicyAnnotation] = "deny-all";
    EXPECT_EQ(Choose().condition, "") << "always to be had";
}

TEST_F(PodPolicyTest, TwoThatFitAreNone) {
    Write("other", "  selector: {matchLabels: {tool: python}}\n");
    config_.policies = {"*"};
    labels_.tool = "python";
    ExpectDenyAll(Choose(), "AmbiguousPolicy", "other, python");
}

TEST_F(PodPolicyTest, AFileWithErrorsMayHoldTheOneThatWasMeant) {
    std::ofstream(dir_ + "/broken.yaml") << "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: broken}\nspec: {exce: {}}\n";
    config_.policies = {"*"};
    config_.namespaces["tools"] = {.policy = "shell", .policies = {}};
    labels_.tool = "ruby";
    ExpectDenyAll(Choose(), "PolicyBroken", "broken.yaml");
    container_.annotations[kPolicyAnnotation] = "broken";
    ExpectDenyAll(Choose(), "PolicyBroken", "exce");
}

TEST_F(PodPolicyTest, WhoIsASandbox) {
    nri::PodSandbox pod;
    pod.set_namespace_("tools");
    EXPECT_FALSE(IsSandboxPod(pod, config_)) << "kube-proxy";
    config_.namespaces["tools"];
    EXPECT_TRUE(IsSandboxPod(pod, config_));
    pod.set_namespace_("other");
    EXPECT_FALSE(IsSandboxPod(pod, config_));
    (*pod.mutable_labels())["app"] = "web";
    EXPECT_FALSE(IsSandboxPod(pod, config_));
    for (const std::string& key : {config_.labels.session, config_.labels.tool, config_.labels.tool_class}) {
        pod.clear_labels();
        (*pod.mutable_labels())[key] = "";
        EXPECT_TRUE(IsSandboxPod(pod, config_)) << key;
    }
    pod.clear_labels();
    (*pod.mutable_annotations())[kPolicyAnnotation] = "";
    EXPECT_TRUE(IsSandboxPod(pod, config_));
}

}  // namespace
}  // namespace stockade::cmd
