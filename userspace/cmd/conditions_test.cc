#include "userspace/cmd/conditions.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace stockade::cmd {
namespace {

std::string Text(const sandbox::Sandbox& sandbox, const char* backend = "lsm") {
    std::string text;
    for (const Condition& condition : SandboxConditions(sandbox, backend)) {
        absl::StrAppend(&text, condition.type, "=", condition.holds ? "True" : "False", "/", condition.reason,
                        " ");
    }
    return absl::StrCat(text, Headline(SandboxConditions(sandbox, backend)));
}

TEST(Conditions, FollowASandboxThroughItsLife) {
    sandbox::Sandbox sandbox;
    sandbox.mode = "enforce";
    EXPECT_EQ(Text(sandbox),
              "Ready=False/Starting Enforced=False/NotBound Degraded=False/AsIntended Starting");
    sandbox.slot = 7;
    sandbox.state = model::SandboxState::kRunning;
    EXPECT_EQ(Text(sandbox), "Ready=True/Attested Enforced=True/Lsm Degraded=False/AsIntended Ready");
    EXPECT_EQ(Text(sandbox, "signal"),
              "Ready=True/Attested Enforced=True/Signal Degraded=False/AsIntended Ready");
    sandbox.state = model::SandboxState::kCondemned;
    EXPECT_EQ(Text(sandbox), "Ready=False/Condemned Enforced=True/Lsm Degraded=False/AsIntended Condemned");
    sandbox.kill_pending = true;
    EXPECT_EQ(Text(sandbox),
              "Ready=False/KillPending Enforced=True/Lsm Degraded=False/AsIntended KillPending");
    sandbox.kill_pending = false;
    sandbox.state = model::SandboxState::kEmpty;
    EXPECT_EQ(Text(sandbox), "Ready=False/Ended Enforced=True/Lsm Degraded=False/AsIntended Ended");
}

TEST(Conditions, SayWhatIsWeakerThanSomebodyMayThink) {
    sandbox::Sandbox sandbox;
    sandbox.slot = 7;
    sandbox.state = model::SandboxState::kRunning;
    sandbox.mode = "observe";
    EXPECT_EQ(Text(sandbox),
              "Ready=True/Attested Enforced=False/ObserveOnly Degraded=False/AsIntended ObserveOnly");
    sandbox.mode = "enforce";
    sandbox.conditions = {"Adopted", "Degraded/NoLandlock", "Degraded/BreakerOpen"};
    EXPECT_EQ(Text(sandbox),
              "Ready=True/Attested Enforced=True/Lsm Degraded=True/NoLandlock Adopted=True/AgentRestarted "
              "Degraded/NoLandlock");
    EXPECT_EQ(SandboxConditions(sandbox, "lsm")[2].message, "NoLandlock, BreakerOpen");
    sandbox.conditions = {"Frozen"};
    EXPECT_EQ(Text(sandbox), "Ready=True/Attested Enforced=True/Lsm Degraded=False/AsIntended Frozen=True/Restrained Frozen");
}

}  // namespace
}  // namespace stockade::cmd
