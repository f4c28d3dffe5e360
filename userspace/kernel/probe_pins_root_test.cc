#include "userspace/kernel/probe_pins.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "userspace/base/fd.h"

namespace stockade::kernel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A bpffs of the test's own, which hangs nowhere: reached by its descriptor.
class ProbePinsRootTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "needs root";
        Fd context(static_cast<int>(syscall(SYS_fsopen, "bpf", 1)));
        ASSERT_TRUE(context.ok());
        ASSERT_EQ(syscall(SYS_fsconfig, context.get(), 6, nullptr, nullptr, 0), 0);
        mount_.Reset(static_cast<int>(syscall(SYS_fsmount, context.get(), 1, 0)));
        ASSERT_TRUE(mount_.ok());
        // Through the descriptor, so that O_NOFOLLOW meets a directory and not the magic link.
        dir_ = "/proc/self/fd/" + std::to_string(mount_.get()) + "/stockade";
        Make("");
    }
    void Make(const std::string& below) { ASSERT_EQ(mkdir((dir_ + below).c_str(), 0700), 0) << below; }
    bool Exists(const std::string& below) { return access((dir_ + below).c_str(), F_OK) == 0; }

    Fd mount_;
    std::string dir_;
};

TEST_F(ProbePinsRootTest, RemovesForeignAndUnfinishedSetsAndNothingElse) {
    for (const char* below : {"/abi1", "/abi1/maps", "/abi2", "/abi2/maps", "/new_x", "/other", "/abix"}) {
        Make(below);
    }
    Fd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "pins_test", 4, 4, 1, nullptr));
    ASSERT_TRUE(map.ok());
    bpf_map_info info{};
    uint32_t size = sizeof(info);
    ASSERT_EQ(bpf_obj_get_info_by_fd(map.get(), &info, &size), 0);
    ASSERT_EQ(bpf_obj_pin(map.get(), (dir_ + "/abi2/maps/m").c_str()), 0);
    ASSERT_EQ(bpf_obj_pin(map.get(), (dir_ + "/abi1/maps/m").c_str()), 0);

    auto stale = FindStalePins(dir_, 1);
    ASSERT_TRUE(stale.ok()) << stale.status();
    EXPECT_THAT(*stale, SizeIs(2));
    Status removed = RemoveStalePins(dir_, *stale);
    EXPECT_TRUE(removed.ok()) << removed;

    EXPECT_FALSE(Exists("/abi2"));
    EXPECT_FALSE(Exists("/new_x"));
    EXPECT_TRUE(Exists("/abi1/maps/m"));
    EXPECT_TRUE(Exists("/other"));
    EXPECT_TRUE(Exists("/abix"));
    EXPECT_THAT(*FindStalePins(dir_, 1), IsEmpty());
}

TEST_F(ProbePinsRootTest, OneDirectoryIsRemovedWithWhatIsInIt) {
    for (const char* below : {"/abi1", "/abi1/set_a", "/abi1/set_b"}) Make(below);
    Fd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "pins_test", 4, 4, 1, nullptr));
    ASSERT_TRUE(map.ok());
    for (const char* below : {"/abi1/set_a/m", "/abi1/set_b/m"}) {
        ASSERT_EQ(bpf_obj_pin(map.get(), (dir_ + below).c_str()), 0);
    }
    EXPECT_TRUE(RemovePins(dir_ + "/abi1", "set_a").ok());
    EXPECT_THAT(*PinDirectories(dir_ + "/abi1"), ElementsAre("set_b"));
    EXPECT_TRUE(Exists("/abi1/set_b/m"));
}

TEST_F(ProbePinsRootTest, ALockedDirectoryIsLeftAlone) {
    Make("/new_x");
    auto agent = Fd::Open(dir_, O_RDONLY | O_DIRECTORY);
    ASSERT_TRUE(agent.ok());
    ASSERT_EQ(flock(agent->get(), LOCK_EX), 0);
    EXPECT_EQ(RemoveStalePins(dir_, *FindStalePins(dir_, 1)).code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(Exists("/new_x"));
    agent->Reset();
    EXPECT_TRUE(RemoveStalePins(dir_, *FindStalePins(dir_, 1)).ok());
}

TEST_F(ProbePinsRootTest, NoDirectoryHoldsNothing) {
    auto stale = FindStalePins(dir_ + "/absent", 1);
    ASSERT_TRUE(stale.ok()) << stale.status();
    EXPECT_THAT(*stale, IsEmpty());
}

}  // namespace
}  // namespace stockade::kernel
