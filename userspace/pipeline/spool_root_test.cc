// The spool on a real disk that is full, and on one that is read-only: mounts of the test's own.
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>

#include "userspace/pipeline/spool_testing.h"

namespace stockade::pipeline {
namespace {

using testing::HasSubstr;

class SpoolDiskTest : public SpoolTest {
  protected:
    void SetUp() override {
        ASSERT_EQ(unshare(CLONE_NEWNS), 0);
        ASSERT_EQ(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
        disk_ = root_ + "/disk";
        ASSERT_TRUE(std::filesystem::create_directory(disk_));
        ASSERT_EQ(mount("disk", disk_.c_str(), "tmpfs", 0, "size=256k"), 0);
        options_.dir = disk_ + "/spool";
        options_.max_bytes = 64 << 20;
    }
    void TearDown() override { (void)umount2(disk_.c_str(), MNT_DETACH); }

    std::string disk_;
};

TEST_F(SpoolDiskTest, ADiskSmallerThanTheBoundGivesUpTheOldest) {
    auto spool = Open();
    for (uint64_t i = 1; i <= 3000; ++i) {
        // A finding has no number of the kernel's.
        v1::Event event = i % 100 == 0 ? Finding("a", i) : Telemetry("a", i - i / 100, 100);
        ASSERT_TRUE(spool->Append(&event).ok());
        if (i % 10 > 0) continue;
        const Status status = spool->Flush();
        ASSERT_TRUE(status.ok()) << i << ": " << status;
    }
    const SpoolCounters counters = spool->counters();
    EXPECT_GT(counters.write_errors.at("ENOSPC"), 0u);
    EXPECT_GT(counters.lost_full, 1000u);
    const auto events = Drain(*spool);
    uint64_t findings = 0;
    for (const v1::Event& event : events) findings += event.has_finding();
    EXPECT_EQ(findings, 30u);
    const ChainReport report = Verify(events)["a"];
    EXPECT_FALSE(report.faulty()) << report.missing << " missing, " << report.broken << " broken at "
                                  << report.first_fault;
    EXPECT_EQ(report.lost, counters.lost_full);
}

TEST_F(SpoolDiskTest, AReadOnlyDiskIsAClearErrorAtTheStart) {
    ASSERT_NE(Open(), nullptr);  // the control
    ASSERT_EQ(mount(nullptr, disk_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
    const auto spool = Spool::Open(options_);
    EXPECT_THAT(std::string(spool.status().message()),
                testing::AllOf(HasSubstr(options_.dir), HasSubstr("EROFS")));
}

}  // namespace
}  // namespace stockade::pipeline
