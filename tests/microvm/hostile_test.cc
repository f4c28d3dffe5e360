// Guests that lie, hang and die: each ends in a state and a reason, with nothing left. What needs no guest is in
// userspace/guest/conversation_test.cc.
#include <gmock/gmock.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/microvm/testing_guest.h"

namespace stockade::guest {
namespace {

struct Hostile {
    const char* does;
    GuestState state;
    Stage stage;
    const char* reason;
    // Where the guest hangs, the time of its stage is what ends it: so long that even a slow machine reaches the stage.
    int boot_ms = 300000, start_ms = 300000, run_ms = 300000, end_ms = 300000, power_off_ms = 300000;
};

void PrintTo(const Hostile& hostile, std::ostream* out) { *out << hostile.does; }

class HostileGuestTest : public GuestTest, public testing::WithParamInterface<Hostile> {};

TEST_P(HostileGuestTest, EndsInAStateAndAReason) {
    const Hostile& hostile = GetParam();
    GuestSpec spec = Spec("true");
    spec.initramfs_fd = images_->hostile_initramfs.get();
    spec.machine.kernel_args = absl::StrCat("HOSTILE=", hostile.does);
    spec.timeouts.boot_ms = hostile.boot_ms;
    spec.timeouts.start_ms = hostile.start_ms;
    spec.timeouts.run_ms = hostile.run_ms;
    spec.timeouts.end_ms = hostile.end_ms;
    spec.timeouts.power_off_ms = hostile.power_off_ms;
    const GuestResult result = Go(spec);
    EXPECT_EQ(GuestStateName(result.state), std::string(GuestStateName(hostile.state))) << Told(result);
    EXPECT_EQ(StageName(result.stage), std::string(StageName(hostile.stage))) << Told(result);
    EXPECT_THAT(result.reason, testing::HasSubstr(hostile.reason)) << Told(result);
    EXPECT_LE(result.console_tail.size(), 128u << 10);
    EXPECT_FALSE(std::filesystem::exists(top_ + "/escaped"));
}

constexpr Hostile kHostile[] = {
    // The control: the same guest without harm is taken.
    {.does = "nothing", .state = GuestState::kCompleted, .stage = Stage::kComplete, .reason = ""},
    {.does = "panics_at_once",
     .state = GuestState::kLost,
     .stage = Stage::kBooting,
     .reason = "before it said hello (control, stdio, events, out); its console tells of a kernel panic"},
    {.does = "powers_off_at_once",
     .state = GuestState::kLost,
     .stage = Stage::kBooting,
     .reason = "before it said hello (control, stdio, events, out)"},
    {.does = "says_nothing",
     .state = GuestState::kTimedOut,
     .stage = Stage::kBooting,
     .reason = "before it said hello (control, stdio, events, out)",
     .boot_ms = 8000},
    {.does = "babbles",
     .state = GuestState::kProtocol,
     .stage = Stage::kBooting,
     .reason = "port stdio: bytes that are no frame"},
    {.does = "never_starts",
     .state = GuestState::kTimedOut,
     .stage = Stage::kStarting,
     .reason = "before the command ran",
     .start_ms = 1000},
    {.does = "panics",
     .state = GuestState::kLost,
     .stage = Stage::kRunning,
     .reason = "while the command ran; its console tells of a kernel panic"},
    {.does = "powers_off",
     .state = GuestState::kLost,
     .stage = Stage::kRunning,
     .reason = "while the command ran"},
    {.does = "floods",
     .state = GuestState::kTimedOut,
     .stage = Stage::kRunning,
     .reason = "while the command ran",
     .run_ms = 3000},
    {.does = "leads_out",
     .state = GuestState::kProtocol,
     .stage = Stage::kRunning,
     .reason = "port out: a path that is not plainly below"},
    {.does = "promises_much",
     .state = GuestState::kProtocol,
     .stage = Stage::kRunning,
     .reason = "port out: more bytes than the limit"},
    {.does = "huge_frame",
     .state = GuestState::kProtocol,
     .stage = Stage::kRunning,
     .reason = "port out: a frame of kind 25 that promises"},
    {.does = "lies_about_counts",
     .state = GuestState::kProtocol,
     .stage = Stage::kEnding,
     .reason = "port control: its end tells of 1000 frames"},
    {.does = "never_ends",
     .state = GuestState::kTimedOut,
     .stage = Stage::kEnding,
     .reason = "before all was told (control)",
     .end_ms = 1000},
    {.does = "powers_off_before_its_end",
     .state = GuestState::kLost,
     .stage = Stage::kEnding,
     .reason = "before all was told (control)"},
    // All was told: the guest is killed, and its result stands.
    {.does = "ignores_the_ack",
     .state = GuestState::kCompleted,
     .stage = Stage::kComplete,
     .reason = "",
     .power_off_ms = 1000},
};
INSTANTIATE_TEST_SUITE_P(Each, HostileGuestTest, testing::ValuesIn(kHostile),
                         [](const auto& info) { return std::string(info.param.does); });

}  // namespace
}  // namespace stockade::guest
