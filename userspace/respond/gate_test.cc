#include "userspace/respond/gate.h"

#include <gtest/gtest.h>

namespace stockade::respond {
namespace {

using Answer = Gate::Answer;
constexpr uint64_t kSecond = 1'000'000'000;

Gate::Question Of(const char* sandbox, const char* session = "") {
    return {.rule = "r",
            .sandbox = sandbox,
            .session = session,
            .once_per = "",
            .throttle_ns = 0,
            .kills = false};
}

TEST(Gate, WithoutLimitsEachTimeIsDue) {
    Gate gate({});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(gate.Ask(Of("a"), kSecond), Answer::kGo);
}

TEST(Gate, OncePerSandboxIsOnceForEach) {
    Gate gate({});
    Gate::Question a = Of("a"), b = Of("b");
    a.once_per = b.once_per = "sandbox";
    EXPECT_EQ(gate.Ask(a, kSecond), Answer::kGo);
    EXPECT_EQ(gate.Ask(a, 900 * kSecond), Answer::kNotDue);
    EXPECT_EQ(gate.Ask(b, kSecond), Answer::kGo);
    a.rule = "other";
    EXPECT_EQ(gate.Ask(a, kSecond), Answer::kGo);
}

TEST(Gate, OncePerSessionSpansItsSandboxes) {
    Gate gate({});
    Gate::Question a = Of("a", "s"), b = Of("b", "s"), lone = Of("c"), other = Of("d");
    for (Gate::Question* question : {&a, &b, &lone, &other}) question->once_per = "session";
    EXPECT_EQ(gate.Ask(a, kSecond), Answer::kGo);
    EXPECT_EQ(gate.Ask(b, kSecond), Answer::kNotDue);
    EXPECT_EQ(gate.Ask(lone, kSecond), Answer::kGo);
    EXPECT_EQ(gate.Ask(other, kSecond), Answer::kGo);
}

TEST(Gate, ThrottleEndsWithItsTime) {
    Gate gate({});
    Gate::Question a = Of("a");
    a.throttle_ns = 10 * kSecond;
    EXPECT_EQ(gate.Ask(a, 100 * kSecond), Answer::kGo);
    EXPECT_EQ(gate.Ask(a, 110 * kSecond - 1), Answer::kNotDue);
    EXPECT_EQ(gate.Ask(a, 110 * kSecond), Answer::kGo);
    EXPECT_EQ(gate.Ask(a, 111 * kSecond), Answer::kNotDue);
}

TEST(Gate, BreakerHoldsBackWhatIsBeyondAndForgetsNobody) {
    Gate gate({.kills = 2, .max_remembered = 100});
    Gate::Question kill = Of("a");
    kill.kills = true;
    kill.once_per = "sandbox";
    EXPECT_EQ(gate.Ask(kill, kSecond), Answer::kGo);
    kill.sandbox = "b";
    EXPECT_EQ(gate.Ask(kill, kSecond), Answer::kGo);
    kill.sandbox = "c";
    EXPECT_EQ(gate.Ask(kill, kSecond), Answer::kHeldBack);
    // Held back is not done: it is due when the breaker has closed.
    EXPECT_EQ(gate.Ask(kill, 62 * kSecond), Answer::kGo);
    kill.rule = "other";
    EXPECT_EQ(gate.Ask(kill, 62 * kSecond), Answer::kGo);
}

TEST(Gate, RememberedOnesAreBounded) {
    Gate gate({.kills = 0, .max_remembered = 2});
    Gate::Question question = Of("a");
    question.once_per = "sandbox";
    for (const char* sandbox : {"a", "b", "c"}) {
        question.sandbox = sandbox;
        EXPECT_EQ(gate.Ask(question, kSecond), Answer::kGo);
    }
    EXPECT_EQ(gate.forgotten(), 1u);
    EXPECT_EQ(gate.Ask(question, kSecond), Answer::kNotDue);
    question.sandbox = "a";
    EXPECT_EQ(gate.Ask(question, kSecond), Answer::kGo);
}

}  // namespace
}  // namespace stockade::respond
