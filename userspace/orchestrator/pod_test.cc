#include "userspace/orchestrator/pod.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace stockade::orchestrator {
namespace {

using ::testing::HasSubstr;

constexpr char kTrace[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const LabelKeys kKeys = {"stockade.dev/session", "stockade.dev/tool", "stockade.dev/trace"};

nri::PodSandbox Pod() {
    nri::PodSandbox pod;
    pod.set_id("p1");
    pod.set_name("web");
    pod.set_namespace_("prod");
    pod.set_uid("2b801b7a-5266-4386-864e-45ed71136371");
    pod.set_runtime_handler("runsc");
    (*pod.mutable_labels())["stockade.dev/session"] = "s1";
    (*pod.mutable_labels())["stockade.dev/trace"] = kTrace;
    (*pod.mutable_labels())["app"] = "web";
    (*pod.mutable_annotations())["stockade.dev/policy"] = "networkless";
    return pod;
}
nri::Container Container() {
    nri::Container container;
    container.set_id(std::string(64, 'a'));
    container.set_pod_sandbox_id("p1");
    container.set_name("tool");
    container.set_pid(42);
    container.add_args("\xff\xfe");
    return container;
}

TEST(Pod, IsWhatTheRuntimeSays) {
    const auto container = ContainerOf(Pod(), Container());
    ASSERT_TRUE(container.ok()) << container.status();
    EXPECT_EQ(container->ref.name_space, "prod");
    EXPECT_EQ(container->ref.name, "web");
    EXPECT_EQ(container->ref.container, "tool");
    EXPECT_EQ(container->ref.container_id, std::string(64, 'a'));
    EXPECT_EQ(container->ref.handler, "runsc");
    EXPECT_EQ(container->pid, 42);
    EXPECT_EQ(container->annotations.at("stockade.dev/policy"), "networkless");
    EXPECT_EQ(container->args.at(0), "\xff\xfe");
    const auto labels = LabelsOf(*container, kKeys);
    ASSERT_TRUE(labels.ok()) << labels.status();
    EXPECT_EQ(labels->labels.session, "s1");
    EXPECT_EQ(labels->labels.tool, "");
    EXPECT_EQ(labels->labels.trace, kTrace);
    EXPECT_THAT(labels->labels.free,
                ::testing::ElementsAre(std::make_pair("app", "web"), std::make_pair("container.id", std::string(64, 'a')),
                                       std::make_pair("container.runtime.handler", "runsc"), std::make_pair("k8s.container.name", "tool"),
                                       std::make_pair("k8s.namespace.name", "prod"), std::make_pair("k8s.pod.name", "web"),
                                       std::make_pair("k8s.pod.uid", "2b801b7a-5266-4386-864e-45ed71136371")));
    EXPECT_EQ(labels->left_out, 0u);
}

TEST(Pod, WhatNoRuntimeSaysIsRefused) {
    const std::vector<std::pair<std::string, std::function<void(nri::PodSandbox*, nri::Container*)>>> all = {
        {"id of a container", [](auto*, auto* c) { c->set_id(""); }},
        {"id of a container", [](auto*, auto* c) { c->set_id("../../x"); }},
        {"id of a container", [](auto*, auto* c) { c->set_id(std::string(257, 'a')); }},
        {"namespace of a pod", [](auto* p, auto*) { p->set_namespace_("a\nb"); }},
        {"name of a pod", [](auto* p, auto*) { p->set_name(""); }},
        {"uid of a pod", [](auto* p, auto*) { p->clear_uid(); }},
        {"not its own", [](auto* p, auto*) { p->set_id("p2"); }},
        {"is none", [](auto*, auto* c) { c->set_pid(0xffffffff); }},
        {"too long", [](auto* p, auto*) { (*p->mutable_annotations())["a"] = std::string(300 << 10, 'x'); }},
        {"labels, at most", [](auto* p, auto*) {
             for (int i = 0; i < 1100; ++i) (*p->mutable_labels())[absl::StrCat(i)] = "";
         }},
    };
    for (const auto& [says, change] : all) {
        nri::PodSandbox pod = Pod();
        nri::Container container = Container();
        change(&pod, &container);
        const auto out = ContainerOf(pod, container);
        ASSERT_TRUE(absl::IsInvalidArgument(out.status())) << says;
        EXPECT_THAT(std::string(out.status().message()), HasSubstr(says));
    }
}

TEST(Pod, ATraceThatIsNoneIsAnError) {
    nri::PodSandbox pod = Pod();
    (*pod.mutable_labels())["stockade.dev/trace"] = "zero";
    const auto container = ContainerOf(pod, Container());
    ASSERT_TRUE(container.ok());
    const auto labels = LabelsOf(*container, kKeys);
    ASSERT_TRUE(absl::IsInvalidArgument(labels.status()));
    EXPECT_THAT(std::string(labels.status().message()), HasSubstr("pod prod/web"));
}

TEST(Pod, LabelsBeyondTheBoundAreCountedAndTheOwnOnesStay) {
    nri::PodSandbox pod = Pod();
    for (int i = 0; i < 40; ++i) (*pod.mutable_labels())[absl::StrCat("a", i)] = "x";
    const auto container = ContainerOf(pod, Container());
    ASSERT_TRUE(container.ok());
    const auto labels = LabelsOf(*container, kKeys);
    ASSERT_TRUE(labels.ok()) << labels.status();
    EXPECT_EQ(labels->labels.free.size(), model::kMaxLabels);
    EXPECT_EQ(labels->left_out, 41 + 6 - model::kMaxLabels);
    EXPECT_EQ(labels->labels.session, "s1");
    EXPECT_EQ(labels->labels.free.at("k8s.pod.name"), "web");
}

TEST(Pod, APodIsNoOtherByItsLabels) {
    nri::PodSandbox pod = Pod();
    pod.clear_runtime_handler();
    (*pod.mutable_labels())["k8s.namespace.name"] = "kube-system";
    (*pod.mutable_labels())["container.runtime.handler"] = "runsc";
    const auto container = ContainerOf(pod, Container());
    ASSERT_TRUE(container.ok());
    const auto labels = LabelsOf(*container, kKeys);
    ASSERT_TRUE(labels.ok()) << labels.status();
    EXPECT_EQ(labels->labels.free.at("k8s.namespace.name"), "prod");
    EXPECT_FALSE(labels->labels.free.contains("container.runtime.handler"));
    EXPECT_EQ(labels->left_out, 2u);
}

}  // namespace
}  // namespace stockade::orchestrator
