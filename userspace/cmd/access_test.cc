#include "userspace/cmd/access.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

namespace stockade::cmd {
namespace {

using testing::HasSubstr;

// Whatever is added to the protocol is root's, until somebody says here that it is not.
TEST(Access, MembersHaveSevenQuestionsAndNoOther) {
    const std::set<std::string> theirs = {"run", "attach", "ps", "inspect", "kill", "ping", "events"};
    const google::protobuf::Descriptor* type = api::Message::descriptor();
    const google::protobuf::OneofDescriptor* body = type->FindOneofByName("body");
    ASSERT_GT(body->field_count(), 30);
    for (int i = 0; i < body->field_count(); ++i) {
        api::Message message;
        (void)message.GetReflection()->MutableMessage(&message, body->field(i));
        EXPECT_EQ(Access::CheckMessage(message).ok(), theirs.count(body->field(i)->name()) == 1)
            << body->field(i)->name();
    }
    EXPECT_FALSE(Access::CheckMessage(api::Message()).ok());
}

TEST(Access, WhatAMemberHandsInIsTheirOwn) {
    const auto run = [](api::FdRole role, const char* path, uid_t uid) {
        api::Packet packet;
        packet.message.mutable_run();
        packet.message.add_fds(role);
        packet.fds.push_back(Fd(open(path, O_PATH | O_CLOEXEC)));
        return Access::CheckRun(packet, uid);
    };
    struct stat root{};
    ASSERT_EQ(stat("/", &root), 0);
    for (const api::FdRole role : {api::FD_IN, api::FD_OUT}) {
        EXPECT_TRUE(run(role, "/", root.st_uid).ok());
        EXPECT_TRUE(absl::IsPermissionDenied(run(role, "/", root.st_uid + 1)));
    }
    for (const api::FdRole role : {api::FD_BIND, api::FD_ROOTFS})
        EXPECT_TRUE(absl::IsPermissionDenied(run(role, "/", root.st_uid)));
    for (const api::FdRole role : {api::FD_STDIN, api::FD_STDOUT, api::FD_SESSION})
        EXPECT_TRUE(run(role, "/", root.st_uid + 1).ok());
    api::Packet profile;
    profile.message.mutable_run()->set_seccomp_json("{}");
    EXPECT_TRUE(absl::IsPermissionDenied(Access::CheckRun(profile, 0)));
}

TEST(Access, AMembersSessionIsItsOwn) {
    const Access own(ApiConfig{.group = "root", .policies = {"networkless"}});
    EXPECT_EQ(own.SessionOf(0, "s"), "s");
    EXPECT_EQ(own.SessionOf(1001, ""), "");
    EXPECT_EQ(own.SessionOf(1001, "s"), "uid1001/s");
    EXPECT_EQ(own.SessionOf(1001, "uid1001/s"), "uid1001/s") << "as events call it";
    // None of these is the name space of 1001.
    for (const char* other : {"uid1001", "uid10011/s", "uid100/s", "UID1001/s", " uid1001/s"})
        EXPECT_EQ(own.SessionOf(1001, other), std::string("uid1001/") + other);
    const Access any(ApiConfig{.group = "root", .policies = {"networkless"}, .any_session = true});
    EXPECT_EQ(any.SessionOf(1001, "s"), "s");
}

TEST(Access, WithoutAGroupOrPoliciesItIsRootsAlone) {
    const api::Peer root{.pid = 1, .uid = 0, .gid = 0}, user{.pid = 1, .uid = 1000, .gid = 0};
    ApiConfig config{.group = "root", .policies = {}};
    EXPECT_FALSE(Access(config).group().has_value());
    EXPECT_TRUE(Access(config).CheckPeer(root, -1).ok());
    EXPECT_THAT(std::string(Access(config).CheckPeer(user, -1).message()), HasSubstr("api.policies"));
    config.policies = {"networkless"};
    EXPECT_EQ(Access(config).group(), std::optional<gid_t>(0));
    EXPECT_TRUE(Access(config).CheckPeer(user, -1).ok());
    EXPECT_FALSE(Access(config).CheckPeer({.pid = 1, .uid = 1000, .gid = 1000}, -1).ok());
    EXPECT_TRUE(Access(config).CheckPolicy("networkless").ok());
    EXPECT_TRUE(absl::IsPermissionDenied(Access(config).CheckPolicy("python-tool")));
    config.group = "no-such-group";
    EXPECT_FALSE(Access(config).group().has_value());
    EXPECT_THAT(Access(config).warning(), HasSubstr("no-such-group"));
    EXPECT_FALSE(Access(config).CheckPeer(user, -1).ok());
}

}  // namespace
}  // namespace stockade::cmd
