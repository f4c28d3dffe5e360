#include "userspace/orchestrator/cgroup_path.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace stockade::orchestrator {
namespace {

const std::string kId(64, 'a');
constexpr char kUid[] = "2b801b7a-5266-4386-864e-45ed71136371";
constexpr char kUidUnder[] = "2b801b7a_5266_4386_864e_45ed71136371";
constexpr char kStatic[] = "eb9d4f1e0e3a4d4e9b0a6c4d1f2e3a4b";

struct Case {
    std::string path;
    std::string runtime, pod_uid, qos;
    std::string container_path = "";  // the whole path, unless it says otherwise
};

TEST(CgroupPath, EveryLayoutThatIsKnown) {
    const std::string burst = absl::StrCat("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod", kUidUnder, ".slice");
    const std::vector<Case> all = {
        {absl::StrCat(burst, "/cri-containerd-", kId, ".scope"), "containerd", kUid, "burstable"},
        {absl::StrCat("/kubepods.slice/kubepods-pod", kUidUnder, ".slice/cri-containerd-", kId, ".scope"), "containerd", kUid, "guaranteed"},
        {absl::StrCat("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod", kUidUnder, ".slice/cri-containerd-", kId, ".scope"),
         "containerd", kUid, "besteffort"},
        {absl::StrCat(burst, "/crio-", kId, ".scope"), "crio", kUid, "burstable"},
        {absl::StrCat(burst, "/crio-", kId, ".scope/container"), "crio", kUid, "burstable", absl::StrCat(burst, "/crio-", kId, ".scope")},
        {absl::StrCat("/kubepods/burstable/pod", kUid, "/", kId), "", kUid, "burstable"},
        {absl::StrCat("/kubepods/besteffort/pod", kUid, "/", kId), "", kUid, "besteffort"},
        {absl::StrCat("/kubepods/pod", kUid, "/", kId), "", kUid, "guaranteed"},
        {absl::StrCat("/kubepods/burstable/pod", kUid, "/crio-", kId), "crio", kUid, "burstable"},
        {absl::StrCat("/system.slice/kubepods-burstable-pod", kUidUnder, ".slice:cri-containerd:", kId), "containerd", kUid, "burstable"},
        {absl::StrCat(burst, "/docker-", kId, ".scope"), "docker", kUid, "burstable"},
        {absl::StrCat("/system.slice/docker-", kId, ".scope"), "docker", "", ""},
        {absl::StrCat("/docker/", kId), "", "", ""},
        {absl::StrCat("/machine.slice/libpod-", kId, ".scope"), "podman", "", ""},
        {absl::StrCat("/machine.slice/libpod-", kId, ".scope/container"), "podman", "", "", absl::StrCat("/machine.slice/libpod-", kId, ".scope")},
        {absl::StrCat("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-", kId, ".scope"), "podman", "", ""},
        {absl::StrCat("/system.slice/nerdctl-", kId, ".scope"), "nerdctl", "", ""},
        {absl::StrCat("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod", kUidUnder,
                      ".slice/cri-containerd-", kId, ".scope"),
         "containerd", kUid, "burstable"},
        {absl::StrCat("/kubelet/kubepods/besteffort/pod", kUid, "/", kId), "", kUid, "besteffort"},
        {absl::StrCat("/kubepods/burstable/pod", kUid, "/kata_", kId), "kata", kUid, "burstable"},
        {absl::StrCat("/kubepods/burstable/pod", kStatic, "/", kId), "", kStatic, "burstable"},
        {absl::StrCat("/kubepods.slice/kubepods-pod", kStatic, ".slice/crio-", kId, ".scope"), "crio", kStatic, "guaranteed"},
    };
    for (const Case& each : all) {
        const auto place = ParseCgroupPath(each.path);
        ASSERT_TRUE(place.has_value()) << each.path;
        EXPECT_EQ(place->container_id, kId) << each.path;
        EXPECT_EQ(place->runtime, each.runtime) << each.path;
        EXPECT_EQ(place->pod_uid, each.pod_uid) << each.path;
        EXPECT_EQ(place->qos, each.qos) << each.path;
        EXPECT_EQ(place->container_path, each.container_path.empty() ? each.path : each.container_path) << each.path;
    }
}

TEST(CgroupPath, WhatIsNoContainer) {
    for (const std::string& path : std::vector<std::string>{
             "", "/", "/init.scope", "/system.slice/ssh.service", "/user.slice/user-0.slice/session-1.scope",
             absl::StrCat("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod", kUidUnder, ".slice"),
             absl::StrCat("/kubepods/burstable/pod", kUid),
             absl::StrCat("/kubepods/burstable/pod", kUid, "/crio-conmon-", kId, ".scope"),
             absl::StrCat("/kubepods.slice/kubepods-pod", kUidUnder, ".slice/crio-conmon-", kId, ".scope"),
             absl::StrCat("/machine.slice/libpod-conmon-", kId, ".scope"),
             absl::StrCat("/docker/", kId.substr(1)),                                   // 63 digits
             absl::StrCat("/docker/", std::string(64, 'A')), absl::StrCat("/docker/", std::string(64, 'g')),
             "/stockade/sbx_01ARZ3NDEKTSV4RRFFQ69G5FAV", absl::StrCat("/", std::string(5000, 'a')),
         }) {
        EXPECT_FALSE(ParseCgroupPath(path).has_value()) << path;
    }
}

// A container can be handed its part of the tree, and names what it makes there.
TEST(CgroupPath, WhatAContainerMakesBelowItselfChangesNothing) {
    const std::string own = absl::StrCat("/kubepods/burstable/pod", kUid, "/", kId);
    const std::string other(64, 'b');
    for (const std::string& below :
         std::vector<std::string>{"/init", "/system.slice/docker-" + other + ".scope", "/" + other,
                                  "/kubepods/pod00000000-0000-0000-0000-000000000000/" + other, "/a/b/c/d/e/f"}) {
        const auto place = ParseCgroupPath(own + below);
        ASSERT_TRUE(place.has_value()) << below;
        EXPECT_EQ(place->container_id, kId) << below;
        EXPECT_EQ(place->pod_uid, kUid) << below;
        EXPECT_EQ(place->container_path, own) << below;
    }
}

// kind: the node itself is a container.
TEST(CgroupPath, APodInANodeThatIsAContainer) {
    const std::string node(64, 'c');
    const std::string path =
        absl::StrCat("/system.slice/docker-", node, ".scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod", kUidUnder,
                     ".slice/cri-containerd-", kId, ".scope");
    const auto place = ParseCgroupPath(path);
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(place->container_id, kId);
    EXPECT_EQ(place->pod_uid, kUid);
    EXPECT_EQ(place->container_path, path);
    const auto of_node = ParseCgroupPath(absl::StrCat("/system.slice/docker-", node, ".scope/kubelet.slice"));
    ASSERT_TRUE(of_node.has_value());
    EXPECT_EQ(of_node->container_id, node);
}

TEST(CgroupPath, AUidThatIsNoneIsNoPod) {
    const auto place = ParseCgroupPath(absl::StrCat("/kubepods/burstable/podx/", kId));
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(place->pod_uid, "");
}

}  // namespace
}  // namespace stockade::orchestrator
