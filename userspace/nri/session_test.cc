#include "userspace/nri/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "userspace/nri/testing_runtime.h"

namespace stockade::nri {
namespace {

using ::testing::HasSubstr;

std::vector<Answered> Answers(Session& session) {
    std::string bytes = session.TakeOutput();
    std::vector<Answered> out;
    while (auto frame = TakeAnswered(&bytes)) out.push_back(*frame);
    EXPECT_EQ(bytes, "") << "whole frames only";
    return out;
}

// Registered, configured and synchronised with nothing; what was said until then is gone.
Session Ready() {
    Session session({});
    EXPECT_TRUE(session.Feed(RegisteredBytes()).ok());
    EXPECT_TRUE(session.Feed(CallBytes(1, "Configure", Configuration())).ok());
    EXPECT_TRUE(session.Feed(CallBytes(3, "Synchronize", SynchronizeRequest())).ok());
    EXPECT_TRUE(session.synchronized());
    (void)session.TakeOutput();
    (void)session.TakeCalls();
    return session;
}

TEST(Session, RegistersAsWhatItIs) {
    Session session({.name = "stockade", .index = "07"});
    const auto answers = Answers(session);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].connection, 2u);
    EXPECT_EQ(answers[0].stream, 1u);
    EXPECT_EQ(answers[0].type, 1);
    RpcRequest request;
    ASSERT_TRUE(request.ParseFromString(answers[0].data));
    EXPECT_EQ(request.service(), "nri.pkg.api.v1alpha1.Runtime");
    EXPECT_EQ(request.method(), "RegisterPlugin");
    RegisterPluginRequest registration;
    ASSERT_TRUE(registration.ParseFromString(request.payload()));
    EXPECT_EQ(registration.plugin_name(), "stockade");
    EXPECT_EQ(registration.plugin_idx(), "07");
}

TEST(Session, AsksForWhatItJudgesAndTakesThePatienceOfTheRuntime) {
    Session session({});
    (void)session.TakeOutput();
    ASSERT_TRUE(session.Feed(RegisteredBytes()).ok());
    ASSERT_TRUE(session.Feed(CallBytes(1, "Configure", Configuration(700))).ok());
    const auto answers = Answers(session);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].connection, 1u);
    EXPECT_EQ(answers[0].type, 2);
    ConfigureResponse response;
    ASSERT_TRUE(response.ParseFromString(answers[0].response().payload()));
    EXPECT_EQ(response.events(), 1 << 3 | 1 << 5 | 1 << 9 | 1 << 10);  // create, start, stop, remove
    EXPECT_EQ(session.request_timeout_ms(), 700);
    EXPECT_EQ(session.runtime(), "fake 1.0");
    EXPECT_FALSE(session.synchronized());
}

TEST(Session, WhatRunsComesInPartsAndIsOneCall) {
    Session session({});
    ASSERT_TRUE(session.Feed(CallBytes(1, "Configure", Configuration())).ok());
    SynchronizeRequest part;
    part.add_containers()->set_id("one");
    part.add_pods()->set_id("pod");
    part.set_more(true);
    ASSERT_TRUE(session.Feed(CallBytes(3, "Synchronize", part)).ok());
    SynchronizeResponse response;
    ASSERT_TRUE(response.ParseFromString(Answers(session).back().response().payload()));
    EXPECT_TRUE(response.more()) << "a runtime closes the connection of a plugin that does not say so";
    EXPECT_FALSE(session.synchronized());
    EXPECT_TRUE(session.TakeCalls().empty());
    part.set_more(false);
    part.mutable_containers(0)->set_id("two");
    ASSERT_TRUE(session.Feed(CallBytes(5, "Synchronize", part)).ok());
    ASSERT_TRUE(session.synchronized());
    const auto calls = session.TakeCalls();
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].kind, CallKind::kSynchronized);
    ASSERT_EQ(calls[0].containers.size(), 2u);
    EXPECT_EQ(calls[0].containers[0].id(), "one");
    EXPECT_EQ(calls[0].containers[1].id(), "two");
    EXPECT_EQ(calls[0].pods.size(), 2u);
}

TEST(Session, MoreThanItTakesEndsTheConnectionInsteadOfGuardingHalf) {
    Session session({});
    ASSERT_TRUE(session.Feed(CallBytes(1, "Configure", Configuration())).ok());
    SynchronizeRequest many;
    for (size_t i = 0; i <= kMaxSynchronized; ++i) many.add_containers()->set_id("x");
    EXPECT_TRUE(absl::IsResourceExhausted(session.Feed(CallBytes(3, "Synchronize", many))));
    EXPECT_FALSE(session.synchronized());
    EXPECT_TRUE(session.TakeCalls().empty());
}

TEST(Session, BothWaysOfAStartAreOne) {
    Session session = Ready();
    ASSERT_TRUE(session.Feed(CallBytes(5, "StartContainer", ContainerOf("new"), 1)).ok());
    StateChangeEvent event;
    event.set_event(6);
    *event.mutable_container() = ContainerOf("old").container();
    ASSERT_TRUE(session.Feed(CallBytes(7, "StateChange", event)).ok());
    const auto calls = session.TakeCalls();
    ASSERT_EQ(calls.size(), 2u);
    EXPECT_EQ(calls[0].kind, CallKind::kStart);
    EXPECT_EQ(calls[0].container.id(), "new");
    EXPECT_EQ(calls[1].kind, CallKind::kStart);
    EXPECT_EQ(calls[1].container.id(), "old");
    EXPECT_TRUE(Answers(session).empty()) << "not before the agent says so";
    session.Answer(calls[1].id, absl::OkStatus());
    session.Answer(calls[0].id, absl::PermissionDeniedError("no \xff\n policy"));
    const auto answers = Answers(session);
    ASSERT_EQ(answers.size(), 2u);
    EXPECT_EQ(answers[0].stream, 7u) << "the order is the agent's";
    EXPECT_EQ(answers[0].response().status().code(), 0);
    EXPECT_EQ(answers[1].stream, 5u);
    EXPECT_EQ(answers[1].response().status().code(), 7);
    EXPECT_EQ(answers[1].response().status().message(), "stockade: no ?? policy");
}

TEST(Session, NoErrorSoundsLikeTheEndOfThePlugin) {
    for (const Status& status : {absl::DeadlineExceededError(""), absl::CancelledError(""), absl::UnavailableError(""),
                                 absl::AbortedError(""), absl::InternalError("")}) {
        Session session = Ready();
        ASSERT_TRUE(session.Feed(CallBytes(5, "CreateContainer", ContainerOf("a"))).ok());
        session.Answer(session.TakeCalls().at(0).id, status);
        EXPECT_EQ(Answers(session).at(0).response().status().code(), 2) << status;
    }
}

TEST(Session, ASecondAnswerIsCountedAndNotSent) {
    Session session = Ready();
    ASSERT_TRUE(session.Feed(CallBytes(5, "CreateContainer", ContainerOf("a"))).ok());
    const uint64_t id = session.TakeCalls().at(0).id;
    session.Answer(id, absl::FailedPreconditionError("late"));
    session.Answer(id, absl::OkStatus());
    EXPECT_EQ(Answers(session).size(), 1u);
    EXPECT_EQ(session.counters().late_answers, 1u);
}

TEST(Session, AnyCutOfTheBytesIsTheSame) {
    const std::string bytes = RegisteredBytes() + CallBytes(1, "Configure", Configuration()) +
                              CallBytes(3, "Synchronize", SynchronizeRequest()) + CallBytes(5, "CreateContainer", ContainerOf("a"));
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
        Session session({});
        for (size_t at = 0; at < bytes.size(); at += cut) ASSERT_TRUE(session.Feed(absl::string_view(bytes).substr(at, cut)).ok());
        const auto calls = session.TakeCalls();
        ASSERT_EQ(calls.size(), 2u) << cut;
        EXPECT_EQ(calls[1].container.id(), "a");
    }
}

TEST(Session, AMessageInPiecesOfTheTrunk) {
    Session session = Ready();
    RpcRequest request;
    request.set_service("nri.pkg.api.v1alpha1.Plugin");
    request.set_method("CreateContainer");
    request.set_payload(ContainerOf("a").SerializeAsString());
    const std::string message = RpcBytes(5, 1, request.SerializeAsString());
    ASSERT_TRUE(session.Feed(TrunkBytes(1, message.substr(0, 10))).ok());
    ASSERT_TRUE(session.Feed(RegisteredBytes()).ok()) << "of the other connection, in between";
    ASSERT_TRUE(session.Feed(TrunkBytes(1, message.substr(10, 7))).ok());
    EXPECT_TRUE(session.TakeCalls().empty());
    ASSERT_TRUE(session.Feed(TrunkBytes(1, message.substr(17))).ok());
    EXPECT_EQ(session.TakeCalls().at(0).container.id(), "a");
}

struct Hostile {
    const char* name;
    std::string bytes;
    const char* says;
};

TEST(Session, WhatIsNoNriEndsTheConnectionWithItsReason) {
    const std::vector<Hostile> all = {
        {"another connection", TrunkBytes(3, "x"), "connection 3"},
        {"a long trunk frame", BigEndian(1) + BigEndian((4 << 20) + 11), "bytes, at most"},
        {"a long message", TrunkBytes(1, BigEndian((4 << 20) + 1) + BigEndian(1) + std::string("\1\0", 2)), "bytes, at most"},
        {"an unknown type", TrunkBytes(1, RpcBytes(1, 9, "")), "type 9"},
        {"HTTP", "GET / HTTP/1.1\r\n\r\n", "connection"},
        {"a refused registration", TrunkBytes(2, RpcBytes(1, 2, std::string("\x0a\x06\x08\x02\x12\x02no", 8))), "refuses the plugin: no"},
        {"no response", TrunkBytes(2, RpcBytes(1, 2, "\xff\xff")), "no ttRPC response"},
    };
    for (const Hostile& hostile : all) {
        Session session({});
        const Status status = session.Feed(hostile.bytes);
        EXPECT_FALSE(status.ok()) << hostile.name;
        EXPECT_THAT(std::string(status.message()), HasSubstr(hostile.says)) << hostile.name;
        EXPECT_EQ(session.counters().broken_streams, 1u) << hostile.name;
        EXPECT_FALSE(session.Feed(CallBytes(1, "Configure", Configuration())).ok() && session.synchronized()) << hostile.name;
    }
}

TEST(Session, WhatItDoesNotKnowIsAnsweredWithAnError) {
    Session session = Ready();
    ASSERT_TRUE(session.Feed(CallBytes(5, "MigrateContainer", ContainerOf("a"))).ok());  // of a newer runtime
    RpcRequest other;
    other.set_service("nri.pkg.api.v2.Plugin");
    other.set_method("CreateContainer");
    ASSERT_TRUE(session.Feed(TrunkBytes(1, RpcBytes(7, 1, other.SerializeAsString()))).ok());
    ASSERT_TRUE(session.Feed(CallBytes(9, "CreateContainer", ContainerOf("a"), 2)).ok());         // as a stream
    ASSERT_TRUE(session.Feed(TrunkBytes(1, RpcBytes(11, 1, "\xff\xff\xff"))).ok());                // no request
    ASSERT_TRUE(session.Feed(CallBytes(13, "CreateContainer", ContainerRequest())).ok());          // of no container
    RpcRequest garbage;
    garbage.set_service("nri.pkg.api.v1alpha1.Plugin");
    garbage.set_method("StartContainer");
    garbage.set_payload("\xff\xff");
    ASSERT_TRUE(session.Feed(TrunkBytes(1, RpcBytes(15, 1, garbage.SerializeAsString()))).ok());
    ASSERT_TRUE(session.Feed(TrunkBytes(1, RpcBytes(17, 3, "data"))).ok());
    ASSERT_TRUE(session.Feed(TrunkBytes(2, RpcBytes(9, 2, ""))).ok());
    const auto answers = Answers(session);
    ASSERT_EQ(answers.size(), 6u);
    const int codes[] = {12, 12, 12, 3, 3, 3};
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(answers[i].response().status().code(), codes[i]) << answers[i].stream;
    EXPECT_TRUE(session.TakeCalls().empty());
    EXPECT_EQ(session.counters().unknown_methods, 2u);
    EXPECT_EQ(session.counters().refused_calls, 1u);
    EXPECT_EQ(session.counters().malformed_messages, 3u);
    EXPECT_EQ(session.counters().stray_frames, 2u);
}

TEST(Session, TooManyThatWaitAreRefused) {
    Session session = Ready();
    for (uint32_t i = 0; i <= kMaxWaiting; ++i)
        ASSERT_TRUE(session.Feed(CallBytes(5 + 2 * i, "CreateContainer", ContainerOf("a"))).ok());
    EXPECT_EQ(session.TakeCalls().size(), kMaxWaiting);
    const auto answers = Answers(session);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].response().status().code(), 8);
    session.RefuseWaiting(absl::FailedPreconditionError("the end"));
    EXPECT_EQ(Answers(session).size(), kMaxWaiting);
}

TEST(Session, OneStreamIsNotTwoRequests) {
    Session session = Ready();
    ASSERT_TRUE(session.Feed(CallBytes(5, "CreateContainer", ContainerOf("a"))).ok());
    EXPECT_TRUE(absl::IsInvalidArgument(session.Feed(CallBytes(5, "StartContainer", ContainerOf("a")))));
}

TEST(Session, ContainersBeforeTheConfigurationAreRefused) {
    Session session({});
    (void)session.TakeOutput();
    ASSERT_TRUE(session.Feed(CallBytes(5, "StartContainer", ContainerOf("a"))).ok());
    EXPECT_EQ(Answers(session).at(0).response().status().code(), 9);
    EXPECT_TRUE(session.TakeCalls().empty());
}

}  // namespace
}  // namespace stockade::nri
