#include "userspace/launch/cgroup.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace stockade::launch {
namespace {

// Directories with the files that a host with these controllers would have: what is written shows.
class Limits : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_limits_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        root_ = name;
        std::filesystem::create_directories(root_ + "/home/sbx");
        for (const char* file : {"cgroup.subtree_control", "home/cgroup.subtree_control"}) Put(file);
        cgroup_.parent = Fd(open((root_ + "/home").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        cgroup_.dir = Fd(open((root_ + "/home/sbx").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    }
    void TearDown() override { std::filesystem::remove_all(root_); }
    void Put(const std::string& file) { std::ofstream(root_ + "/" + file) << ""; }
    std::string Get(const std::string& file) {
        auto text = ReadFile(root_ + "/" + file, 4096);
        return text.ok() ? *text : std::string(text.status().message());
    }
    std::string root_;
    SandboxCgroup cgroup_;
};

TEST_F(Limits, AreWrittenWhereTheControllersAre) {
    for (const char* file : {"memory.max", "memory.swap.max", "pids.max", "cpu.max"}) {
        Put(std::string("home/sbx/") + file);
    }
    const Status status =
        ApplyLimits(cgroup_, {.pids_max = 1024, .memory_max_bytes = 2ull << 30, .cpu_max_percent = 150});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(Get("home/sbx/memory.max"), "2147483648");
    EXPECT_EQ(Get("home/sbx/memory.swap.max"), "0");
    EXPECT_EQ(Get("home/sbx/pids.max"), "1024");
    EXPECT_EQ(Get("home/sbx/cpu.max"), "150000 100000");
    EXPECT_EQ(cgroup_.unlimited, "");
}

TEST_F(Limits, AbsentControllersAreAskedForAndNamed) {
    Put("home/sbx/pids.max");
    const Status status = ApplyLimits(cgroup_, {.pids_max = 7, .memory_max_bytes = 1, .cpu_max_percent = 1});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(Get("home/sbx/pids.max"), "7");
    EXPECT_EQ(cgroup_.unlimited, "memory, cpu");
    // Written one over the other: these are no control files. The last is cpu's.
    EXPECT_EQ(Get("cgroup.subtree_control").substr(0, 4), "+cpu");
    EXPECT_EQ(Get("home/cgroup.subtree_control").substr(0, 4), "+cpu");
}

TEST_F(Limits, ZeroIsNone) {
    Put("home/sbx/memory.max");
    Put("home/sbx/memory.swap.max");
    ASSERT_TRUE(ApplyLimits(cgroup_, {}).ok());
    EXPECT_EQ(Get("home/sbx/memory.max"), "");
    EXPECT_EQ(Get("home/sbx/memory.swap.max"), "");
    EXPECT_EQ(cgroup_.unlimited, "");
}

}  // namespace
}  // namespace stockade::launch
