#include "userspace/launch/native.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "userspace/launch/launch_testing.h"

namespace stockade::launch {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Native, RunsTheCommandAndPassesItsStatus) {
    Ran ran = RunProbe({"getpid", "exit", "7"});
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_TRUE(ran.exec.started) << ran.exec.stage;
    EXPECT_EQ(ran.exit_status, 7);
    EXPECT_EQ(ran.out, "pid 2\n");
}

TEST(Native, ExitStatusesAreThoseOfAShell) {
    EXPECT_EQ(RunProbe({"exit", "0"}).exit_status, 0);
    EXPECT_EQ(RunProbe({"die", "15"}).exit_status, 128 + 15);
    EXPECT_EQ(RunProbe({"die", "9"}).exit_status, 128 + 9);
    Ran missing = RunSandbox(MakeSpec({"no-such-program"}));
    EXPECT_FALSE(missing.exec.started);
    EXPECT_EQ(missing.exec.exit_status, 127);
    EXPECT_EQ(missing.exit_status, 127);
    Ran forbidden = RunSandbox(MakeSpec({"/etc/passwd"}));
    EXPECT_EQ(forbidden.exec.exit_status, 126);
    EXPECT_EQ(forbidden.exec.error, EACCES);
    EXPECT_EQ(forbidden.exit_status, 126);
}

TEST(Native, RealInterpreterWorks) {
    Ran ran = RunSandbox(MakeSpec({"python3", "-c", "print(42)"}));
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_EQ(ran.out, "42\n");
    EXPECT_EQ(ran.exit_status, 0);
}

}  // namespace
}  // namespace stockade::launch
