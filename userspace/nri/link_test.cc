#include "userspace/nri/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "userspace/nri/testing_runtime.h"

namespace stockade::nri {
namespace {

using ::testing::HasSubstr;

class LinkTest : public ::testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_nri_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        dir_ = name;
    }
    void TearDown() override {
        link_.reset();
        std::filesystem::remove_all(dir_);
    }
    Link::Options Options() const {
        Link::Options options;
        options.socket = dir_ + "/nri.sock";
        options.retry_ns = options.refused_retry_ns = 10'000'000;
        return options;
    }
    void Start(const Link::Options& options) {
        auto link = Link::Start(options);
        ASSERT_TRUE(link.ok()) << link.status();
        link_ = *std::move(link);
    }
    // The next call that the agent gets; of the kind that is expected.
    Call Next(CallKind kind) {
        while (calls_.empty()) {
            pollfd wait = {link_->event_fd(), POLLIN, 0};
            if (poll(&wait, 1, 10000) != 1) {
                ADD_FAILURE() << "no call came";
                return {};
            }
            for (Call& call : link_->TakeCalls()) calls_.push_back(std::move(call));
        }
        Call call = std::move(calls_.front());
        calls_.erase(calls_.begin());
        EXPECT_EQ(call.kind, kind);
        return call;
    }
    template <typename Fn>
    static bool Until(Fn fn) {
        const uint64_t end = BootNow() + 10'000'000'000;
        while (!fn()) {
            if (BootNow() > end) return false;
            usleep(1000);  // between two looks, not instead of them
        }
        return true;
    }
    std::string dir_;
    std::unique_ptr<Link> link_;
    std::vector<Call> calls_;
};

TEST_F(LinkTest, ARuntimeThatComesLaterIsFoundAndIsSynchronised) {
    Start(Options());
    ASSERT_TRUE(Until([&] { return !link_->state().trouble.empty(); }));
    EXPECT_FALSE(link_->state().up);
    EXPECT_THAT(link_->state().trouble, HasSubstr(dir_ + "/nri.sock"));
    FakeRuntime runtime(dir_ + "/nri.sock");
    SynchronizeRequest running;
    running.add_containers()->set_id("before");
    runtime.Handshake(running);
    EXPECT_EQ(Next(CallKind::kSynchronized).containers.at(0).id(), "before");
    ASSERT_TRUE(Until([&] { return link_->state().up; }));
    EXPECT_EQ(link_->state().runtime, "fake 1.0");
    EXPECT_EQ(link_->counters().connections, 1u);
}

TEST_F(LinkTest, TheAgentsWordGoesToTheRuntime) {
    FakeRuntime runtime(dir_ + "/nri.sock");
    Start(Options());
    runtime.Handshake();
    (void)Next(CallKind::kSynchronized);
    runtime.Send(CallBytes(5, "CreateContainer", ContainerOf("a")));
    EXPECT_EQ(link_->Answer(Next(CallKind::kCreate).id, absl::OkStatus()), Link::Told::kYes);
    auto answer = runtime.Receive();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->stream, 5u);
    EXPECT_EQ(answer->response().status().code(), 0);
    runtime.Send(CallBytes(7, "StartContainer", ContainerOf("a")));
    EXPECT_EQ(link_->Answer(Next(CallKind::kStart).id, absl::FailedPreconditionError("not bound")), Link::Told::kYes);
    answer = runtime.Receive();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->response().status().code(), 9);
    EXPECT_EQ(answer->response().status().message(), "stockade: not bound");
}

TEST_F(LinkTest, AnEndIsAnsweredWithoutTheAgent) {
    FakeRuntime runtime(dir_ + "/nri.sock");
    Start(Options());
    runtime.Handshake();
    (void)Next(CallKind::kSynchronized);
    runtime.Send(CallBytes(5, "StopContainer", ContainerOf("a")));
    ASSERT_TRUE(runtime.Receive().has_value());
    EXPECT_EQ(Next(CallKind::kStop).id, 0u);
}

// The agent that hangs: the runtime would wait 2 s and let the container go.
TEST_F(LinkTest, WithoutAWordFromTheAgentItIsRefusedInTime) {
    FakeRuntime runtime(dir_ + "/nri.sock");
    Link::Options options = Options();
    options.answer_ns = 200'000'000;
    Start(options);
    runtime.Handshake();
    (void)Next(CallKind::kSynchronized);
    const uint64_t asked = BootNow();
    runtime.Send(CallBytes(5, "StartContainer", ContainerOf("a")));
    const Call call = Next(CallKind::kStart);
    const auto answer = runtime.Receive();
    const uint64_t waited = BootNow() - asked;
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->response().status().code(), 9);
    EXPECT_THAT(answer->response().status().message(), HasSubstr("in time"));
    EXPECT_GE(waited, 190'000'000u);
    EXPECT_EQ(link_->Answer(call.id, absl::OkStatus()), Link::Told::kRefused) << "it is told that its word came too late";
    EXPECT_EQ(link_->counters().overdue_calls, 1u);
    EXPECT_FALSE(runtime.Receive(50).has_value()) << "one answer to one request";
}

TEST_F(LinkTest, ARuntimeWithLessPatienceIsAnsweredSooner) {
    FakeRuntime runtime(dir_ + "/nri.sock");
    Link::Options options = Options();
    options.answer_ns = 60'000'000'000;
    Start(options);
    runtime.Handshake({}, 400);
    (void)Next(CallKind::kSynchronized);
    const uint64_t asked = BootNow();
    runtime.Send(CallBytes(5, "StartContainer", ContainerOf("a")));
    const auto answer = runtime.Receive();
    ASSERT_TRUE(answer.has_value());
    EXPECT_NE(answer->response().status().code(), 0);
    EXPECT_GE(BootNow() - asked, 290'000'000u);
}

TEST_F(LinkTest, ConnectsAgainAndIsToldOfWhatRuns) {
    FakeRuntime runtime(dir_ + "/nri.sock");
    Start(Options());
    runtime.Handshake();
    (void)Next(CallKind::kSynchronized);
    runtime.Send(CallBytes(5, "StartContainer", ContainerOf("a")));
    const Call call = Next(CallKind::kStart);
    runtime.Away();
    ASSERT_TRUE(Until([&] { return !link_->state().up; }));
    EXPECT_EQ(link_->Answer(call.id, absl::OkStatus()), Link::Told::kGone) << "there is nobody to tell";
    runtime.Listen();
    SynchronizeRequest running;
    running.add_containers()->set_id("a");
    runtime.Handshake(running);
    EXPECT_EQ(Next(CallKind::kSynchronized).containers.at(0).id(), "a");
    ASSERT_TRUE(Until([&] { return link_->state().up; }));
    EXPECT_EQ(link_->counters().connections, 2u);
    EXPECT_EQ(link_->counters().lost_connections, 1u);
}

// The runtime has dropped us while we were at it, and started the container.
TEST_F(LinkTest, AnAnswerThatDoesNotArriveIsTold) {
    FakeRuntime runtime(dir_ + "/nri.sock");
    Start(Options());
    runtime.Handshake();
    (void)Next(CallKind::kSynchronized);
    runtime.Send(CallBytes(5, "StartContainer", ContainerOf("a")));
    const Call call = Next(CallKind::kStart);
    runtime.Drop();
    // Either it is known by now that nobody is there, or the answer finds nobody.
    if (link_->Answer(call.id, absl::OkStatus()) != Link::Told::kGone) {
        EXPECT_EQ(Next(CallKind::kUnheard).container.id(), "a");
    }
}

TEST_F(LinkTest, BytesOfSomethingElseRefuseWhatWaitsBeforeTheEnd) {
    FakeRuntime runtime(dir_ + "/nri.sock");
    Start(Options());
    runtime.Handshake();
    (void)Next(CallKind::kSynchronized);
    runtime.Send(CallBytes(5, "StartContainer", ContainerOf("a")));
    (void)Next(CallKind::kStart);
    runtime.Send(TrunkBytes(9, "?"));
    const auto answer = runtime.Receive();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->stream, 5u);
    EXPECT_EQ(answer->response().status().code(), 9);
    EXPECT_TRUE(runtime.Closed());
    runtime.Handshake();
    EXPECT_EQ(link_->counters().session.broken_streams, 1u);
}

TEST_F(LinkTest, ARuntimeThatHangsBeforeItConfiguresIsLeft) {
    FakeRuntime runtime(dir_ + "/nri.sock");
    Link::Options options = Options();
    options.handshake_ns = 100'000'000;
    Start(options);
    ASSERT_TRUE(runtime.Accept());
    EXPECT_TRUE(runtime.Closed());
    EXPECT_GE(link_->counters().failed_handshakes, 1u);
    runtime.Handshake();
    ASSERT_TRUE(Until([&] { return link_->state().up; }));
}

TEST_F(LinkTest, ARefusedRegistrationIsSaid) {
    FakeRuntime runtime(dir_ + "/nri.sock");
    Start(Options());
    ASSERT_TRUE(runtime.Accept());
    RpcResponse refusal;
    refusal.mutable_status()->set_code(2);
    refusal.mutable_status()->set_message("invalid plugin index");
    runtime.Send(TrunkBytes(2, RpcBytes(1, 2, refusal.SerializeAsString())));
    ASSERT_TRUE(Until([&] { return absl::StrContains(link_->state().trouble, "invalid plugin index"); })) << link_->state().trouble;
}

// A burst: nothing is mixed up, and each gets its own answer.
TEST_F(LinkTest, ManyAtOnceInAnyOrder) {
    FakeRuntime runtime(dir_ + "/nri.sock");
    Start(Options());
    runtime.Handshake();
    (void)Next(CallKind::kSynchronized);
    std::string burst;
    constexpr uint32_t kMany = 100;
    for (uint32_t i = 0; i < kMany; ++i) burst += CallBytes(5 + 2 * i, "CreateContainer", ContainerOf(absl::StrCat("c", i)));
    runtime.Send(burst);
    std::vector<Call> calls;
    for (uint32_t i = 0; i < kMany; ++i) calls.push_back(Next(CallKind::kCreate));
    for (uint32_t i = kMany; i-- > 0;) {
        const Status word = i % 3 == 0 ? Status(absl::FailedPreconditionError(calls[i].container.id())) : absl::OkStatus();
        EXPECT_EQ(link_->Answer(calls[i].id, word), Link::Told::kYes);
    }
    for (uint32_t seen = 0; seen < kMany; ++seen) {
        const auto answer = runtime.Receive();
        ASSERT_TRUE(answer.has_value());
        const uint32_t i = (answer->stream - 5) / 2;
        EXPECT_EQ(answer->response().status().message(), i % 3 == 0 ? absl::StrCat("stockade: c", i) : "");
    }
}

}  // namespace
}  // namespace stockade::nri
