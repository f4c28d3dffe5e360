#include "userspace/cmd/pod_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "userspace/policy/builtin.h"
#include "userspace/policy/canonical.h"
#include "userspace/policy/judge.h"

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
    void WriteOwn(const std::string& name_space, const std::string& policy, const std::string& spec) {
        std::ofstream(absl::StrCat(dir_, "/", name_space, ".", policy, ".yaml"))
            << "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: " << policy << ", namespace: " << name_space
            << "}\nspec: " << spec << "\n";
    }
    static bool Allowed(const PodPolicy& policy, policy::CaseKind kind, const std::string& object) {
        const StatusOr<policy::Judge> judge = policy::Judge::Create(policy.policy);
        EXPECT_TRUE(judge.ok()) << judge.status();
        policy::TestCase question;
        question.kind = kind;
        question.object = object;
        return judge->Decide(question).allowed;
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

TEST_F(PodPolicyTest, WhatANamespaceHasForItselfIsCutDownToWhatTheNodeGives) {
    config_.namespaces["tools"] = {.policy = "shell", .policies = {}};
    WriteOwn("tools", "mine", "{exec: {allow: ['/bin/*']}, files: {read: [/**]}, network: {}}");
    EXPECT_EQ(Choose().policy.name, "shell") << "nothing names it";
    container_.annotations[kPolicyAnnotation] = "mine";
    const PodPolicy got = Choose();
    EXPECT_EQ(got.condition, "");
    EXPECT_EQ(got.policy.name, "tools/mine");
    EXPECT_TRUE(Allowed(got, policy::CaseKind::kExec, "/bin/true"));
    EXPECT_FALSE(Allowed(got, policy::CaseKind::kExec, "/bin/sh")) << "the node's policy refuses it";
    EXPECT_FALSE(Allowed(got, policy::CaseKind::kRead, "/work/x")) << "likewise";
    WriteOwn("tools", "mine", "{exec: {allow: []}}");
    EXPECT_FALSE(Allowed(Choose(), policy::CaseKind::kExec, "/bin/true")) << "its own refuses it";
}

TEST_F(PodPolicyTest, ItsSelectorFindsItAndTheNodesSelectorItsCeiling) {
    WriteOwn("tools", "mine", "{selector: {matchLabels: {tool: python}}, exec: {allow: [/bin/true]}}");
    labels_.tool = "ruby";
    ExpectDenyAll(Choose(), "PolicyNotFound", "none selects it");
    labels_.tool = "python";
    EXPECT_EQ(Choose().policy.name, "tools/mine");
    EXPECT_THAT(Choose().policy.bases, ::testing::Contains("python"));
    WriteOwn("tools", "twice", "{selector: {matchLabels: {tool: python}}}");
    ExpectDenyAll(Choose(), "AmbiguousPolicy", "tools/mine, tools/twice");
}

TEST_F(PodPolicyTest, WithoutAPolicyOfTheNodeAboveItItIsNone) {
    config_.policies = {"*"};
    WriteOwn("tools", "mine", "{exec: {allow: [/**]}}");
    container_.annotations[kPolicyAnnotation] = "mine";
    ExpectDenyAll(Choose(), "PolicyNotFound", "has no default");
    config_.policies = {};
    labels_.tool = "python";
    ExpectDenyAll(Choose(), "PolicyNotAllowed", "its labels select python");
}

TEST_F(PodPolicyTest, AnothersNamespaceHasNoneForIt) {
    config_.policies = {"*"};
    config_.namespaces["tools"] = {.policy = "shell", .policies = {}};
    WriteOwn("other", "theirs", "{selector: {matchLabels: {tool: ruby}}, exec: {allow: [/**]}}");
    for (const char* name : {"theirs", "other/theirs", "tools/theirs"}) {
        container_.annotations[kPolicyAnnotation] = name;
        ExpectDenyAll(Choose(), "PolicyNotFound", "no policy");
    }
    container_.annotations.clear();
    labels_.tool = "ruby";
    EXPECT_EQ(Choose().policy.name, "shell");
    // Nor does it choose for who is not a pod at all.
    PolicyStore store({dir_}, "networkless");
    api::PolicySource source;
    EXPECT_EQ(store.Choose(source, labels_)->policy.name, "networkless");
    source.set_name("other/theirs");
    EXPECT_TRUE(absl::IsNotFound(store.Choose(source, labels_).status()));
}

TEST_F(PodPolicyTest, TheNextAgentFindsItByItsName) {
    config_.namespaces["tools"] = {.policy = "shell", .policies = {}};
    WriteOwn("tools", "mine", "{exec: {allow: [/bin/true, /bin/sh]}}");
    container_.annotations[kPolicyAnnotation] = "mine";
    const PodPolicy chosen = Choose();
    PolicyStore store({dir_}, "networkless");
    const StatusOr<policy::ResolvedPolicy> again = PolicyOfName(chosen.policy.name, labels_, config_, store);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(policy::CanonicalText(*again), policy::CanonicalText(chosen.policy));
    EXPECT_EQ(PolicyOfName("shell", labels_, config_, store)->name, "shell");
    EXPECT_TRUE(absl::IsNotFound(PolicyOfName("tools/gone", labels_, config_, store).status()));
}

TEST_F(PodPolicyTest, ItsErrorsAreItsOwnAlone) {
    config_.namespaces["tools"] = {.policy = "shell", .policies = {}};
    config_.namespaces["other"] = {.policy = "shell", .policies = {}};
    WriteOwn("tools", "broken", "{exce: {}}");
    WriteOwn("tools", "lost", "{extends: [nobody]}");
    labels_.tool = "ruby";
    ExpectDenyAll(Choose(), "PolicyBroken", "exce");
    container_.annotations[kPolicyAnnotation] = "lost";
    ExpectDenyAll(Choose(), "PolicyBroken", "nobody");
    container_.annotations.clear();
    container_.ref.name_space = "other";
    EXPECT_EQ(Choose().policy.name, "shell");
}

TEST_F(PodPolicyTest, NorDoesOneListMakeThemAnothers) {
    config_.namespaces["tools"] = {.policy = "shell", .policies = {}};
    config_.namespaces["other"] = {.policy = "shell", .policies = {}};
    std::ofstream(dir_ + "/list.yaml")
        << "apiVersion: v1\nkind: List\nitems:\n"
        << "- {apiVersion: stockade.dev/v1, kind: SandboxPolicy, metadata: {name: mine, namespace: tools}, spec: {exce: {}}}\n"
        << "- {apiVersion: stockade.dev/v1, kind: SandboxPolicy, metadata: {name: mine, namespace: other}, spec: {exec: {}}}\n";
    container_.annotations[kPolicyAnnotation] = "mine";
    ExpectDenyAll(Choose(), "PolicyBroken", "exce");
    container_.ref.name_space = "other";
    EXPECT_EQ(Choose().policy.name, "other/mine");
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
