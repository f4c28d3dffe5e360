#include "userspace/kernel/bpffs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stockade::kernel {
namespace {

using ::testing::HasSubstr;

// A directory where nothing is mounted, among mounts of the test's own.
class BpffsTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "needs root";
        char name[] = "/tmp/bpffs_test.XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        dir_ = name;
    }
    void TearDown() override {
        if (dir_.empty()) return;
        EXPECT_EQ(rmdir(dir_.c_str()), 0);  // what was mounted went with its namespace
    }
    // In a thread, so that its mounts go with it.
    template <typename Body>
    void Apart(Body body) {
        std::thread([&] {
            ASSERT_EQ(unshare(CLONE_FS | CLONE_NEWNS), 0);
            ASSERT_EQ(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
            body();
        }).join();
    }
    int Mounts() {
        std::ifstream mounts("/proc/thread-self/mountinfo");
        int count = 0;
        for (std::string line; std::getline(mounts, line);) count += absl::StrContains(line, absl::StrCat(" ", dir_, " "));
        return count;
    }
    std::string dir_;
};

TEST_F(BpffsTest, IsMountedOnceByAgentsThatStartTogether) {
    Apart([&] {
        std::vector<std::thread> agents;
        for (int i = 0; i < 8; ++i) {
            agents.emplace_back([&] {
                const Status status = EnsureBpffs(dir_ + "/stockade", dir_, true);
                EXPECT_TRUE(status.ok()) << status;
            });
        }
        for (std::thread& agent : agents) agent.join();
        EXPECT_EQ(Mounts(), 1);
        EXPECT_EQ(mkdir((dir_ + "/stockade").c_str(), 0700), 0);
        EXPECT_TRUE(EnsureBpffs(dir_ + "/stockade", dir_, false).ok());
        EXPECT_EQ(Mounts(), 1);
    });
}

TEST_F(BpffsTest, IsNotMountedWhereItWouldNotLast) {
    Apart([&] {
        const Status status = EnsureBpffs(dir_ + "/stockade", dir_, false);
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("mount -t bpf bpf ", dir_)));
        EXPECT_EQ(Mounts(), 0);
        EXPECT_FALSE(InHostMounts());  // of this thread
    });
}

TEST_F(BpffsTest, IsNotMountedForPinsElsewhere) {
    Apart([&] {
        EXPECT_EQ(EnsureBpffs("/var/tmp/pins", dir_, true).code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_EQ(EnsureBpffs(dir_ + "x/pins", dir_, true).code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_EQ(Mounts(), 0);
    });
}

}  // namespace
}  // namespace stockade::kernel
