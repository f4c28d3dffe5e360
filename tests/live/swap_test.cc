// A policy is swapped a thousand times under a loop of opens: each verdict is the old one's or the new one's, and none is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/live/sandbox.h"

namespace stockade::live {
namespace {

constexpr int kBurst = 51;  // odd, so that each burst ends with another policy than the one before

// Both policies allow one of two files that the loop opens; neither allows what a moment without policy would refuse.
TEST(Swap, EachVerdictIsOfTheOldPolicyOrTheNew) {
    ASSERT_NE(TheSensor(), nullptr);
    const std::string read = "/etc/passwd";
    Policy first{.read = {read, "/etc/group"}}, second{.read = {read, "/etc/hosts"}};
    int64_t a = Publish(first), b = Publish(second);
    ASSERT_GE(a, 0);
    ASSERT_GE(b, 0);
    ASSERT_NE(a, b);
    Sandbox sandbox(first, {"open_loop", read});
    ASSERT_TRUE(sandbox.ok());
    sandbox.Go();
    ASSERT_TRUE(sandbox.WaitOutput("A"));
    const int swaps = InGuest() ? 200 : 1000;
    size_t opened = sandbox.output().size();
    std::set<uint64_t> policies;
    for (int i = 0; i < swaps; i++) {
        // Many at a time: verdicts fall into the midst of a swap only where one follows upon the other.
        for (int j = i % 2; j < kBurst + i % 2; j++) {
            Status swapped = TheSensor()->SwapPolicy(sandbox.ref(), static_cast<uint32_t>(j % 2 ? a : b));
            ASSERT_TRUE(swapped.ok()) << swapped;
        }
        // The loop goes on between two swaps.
        ASSERT_TRUE(sandbox.WaitMore(1)) << "the loop ended after " << i << " swaps: " << sandbox.output().substr(opened);
        for (const Record& record : DrainRecords()) {
            if (record.head.slot != sandbox.ref().slot) continue;
            EXPECT_EQ(record.head.code, static_cast<uint32_t>(SK_CODE_OK));
            policies.insert(record.head.policy_id);
        }
    }
    EXPECT_EQ(policies.size(), 2u) << "opens were judged by both";
    EXPECT_EQ(policies.count(0), 0u) << "an open was judged by none";
    EXPECT_EQ(std::count(sandbox.output().begin(), sandbox.output().end(), 'E'), 0);
    EXPECT_EQ((*TheSensor()->ReadState(sandbox.ref())).violations[SK_SECTION_FILES], 0u);
    std::cout << sandbox.output().size() << " opens under " << swaps * kBurst << " swaps\n";
    EXPECT_TRUE(TheSensor()->RetirePolicy(static_cast<uint32_t>(a)).ok());
    EXPECT_TRUE(TheSensor()->RetirePolicy(static_cast<uint32_t>(b)).ok());
}

// From a policy that allows to one that refuses: after the swap has returned no open works.
TEST(Swap, NoVerdictOfTheOldPolicyAfterTheSwap) {
    ASSERT_NE(TheSensor(), nullptr);
    Sandbox sandbox({.read = {"/etc/passwd"}}, {"open_loop", "/etc/passwd"});
    ASSERT_TRUE(sandbox.ok());
    int64_t none = Publish({.read = {"/etc/group"}});
    ASSERT_GE(none, 0);
    sandbox.Go();
    ASSERT_TRUE(sandbox.WaitOutput("A"));
    ASSERT_TRUE(TheSensor()->SwapPolicy(sandbox.ref(), static_cast<uint32_t>(none)).ok());
    if (UnderLsm()) {
        ASSERT_TRUE(sandbox.WaitOutput("E"));
        ASSERT_TRUE(sandbox.WaitMore(100));
        std::string tail = sandbox.output().substr(sandbox.output().find('E'));
        EXPECT_EQ(std::count(tail.begin(), tail.end(), 'A'), 0) << tail;
    } else {
        Result result = sandbox.Finish();
        EXPECT_TRUE(result.killed()) << result.status;
    }
    EXPECT_TRUE(TheSensor()->RetirePolicy(static_cast<uint32_t>(none)).ok());
}

// Something was refused, and not only reported as what would have been.
bool Refused(const Result& result) {
    const std::vector<Record> violations = result.Violations();
    return std::any_of(violations.begin(), violations.end(),
                       [](const Record& record) { return (record.head.flags & SK_RECORD_OBSERVE) == 0; });
}

// What a response takes from a running sandbox: one address, whatever the rules allow, and nothing else.
TEST(Swap, ADeniedAddressIsRefusedAndNoOther) {
    ASSERT_NE(TheSensor(), nullptr);
    constexpr uint32_t kHere = 0x7f000001, kBeside = 0x7f000002;
    const Policy listed{.loopback = {19}}, silent{.network_section = false};
    for (Policy policy : {listed, silent}) {
        for (const char* call : {"connect_tcp4", "connect_mapped", "connect_udp", "send_udp4", "send_mapped", "send_unspec"}) {
            policy.denied = {kBeside};
            Result open = RunSandboxed(policy, {call, "19"});
            EXPECT_FALSE(Refused(open)) << call << open.Describe();
            policy.denied = {kBeside, kHere};
            Result denied = RunSandboxed(policy, {call, "19"});
            EXPECT_TRUE(Refused(denied)) << call << denied.Describe();
            EXPECT_NE(denied.Find(SK_CODE_ADDRESS_DENIED), nullptr) << call << denied.Describe();
        }
        // It is an address to connect to, and none to be at.
        Result bound = RunSandboxed(policy, {"bind4", "19"});
        EXPECT_FALSE(Refused(bound)) << bound.Describe();
        policy.observe = true;
        Result watched = RunSandboxed(policy, {"connect_tcp4", "19"});
        EXPECT_FALSE(Refused(watched)) << watched.Describe();
        EXPECT_NE(watched.Find(SK_CODE_ADDRESS_DENIED), nullptr) << watched.Describe();
    }
}

}  // namespace
}  // namespace stockade::live
