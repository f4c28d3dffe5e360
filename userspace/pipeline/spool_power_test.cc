// The spool after a power failure, and after a kill in the middle of a flush.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <set>

#include "userspace/base/fd.h"
#include "userspace/pipeline/spool_testing.h"

namespace stockade::pipeline {
namespace {

std::string PathOf(int fd) {
    return std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", fd)).string();
}

class SpoolPowerTest : public SpoolTest {
  protected:
    SpoolPowerTest() {
        // How much of each file the disk has for sure.
        options_.sync = [this](int fd) {
            struct stat st{};
            const std::string path = PathOf(fd);
            EXPECT_EQ(fstat(fd, &st), 0);
            on_disk_[path] = static_cast<uint64_t>(st.st_size);
            return fdatasync(fd);
        };
    }
    // The files as a disk may have them that loses power now: of what was not synced any part, the beginning of it.
    void PowerFailure(std::mt19937& random) {
        const std::map<std::string, uint64_t> on_disk = on_disk_;  // the end of the process below syncs, and had no time to
        const std::string copy = root_ + "/copy";
        std::filesystem::copy(options_.dir, copy, std::filesystem::copy_options::recursive);
        spool_.reset();
        std::filesystem::remove_all(options_.dir);
        std::filesystem::rename(copy, options_.dir);
        for (const Lane lane : {kTelemetry, kViolations, kFindings}) {
            for (const std::string& path : Segments(lane)) {
                const auto synced = on_disk.find(path);
                const uint64_t most = std::filesystem::file_size(path);
                // One that was cut at a start since is shorter.
                const uint64_t least = synced == on_disk.end() ? 0 : std::min(most, synced->second);
                const uint64_t left = least + random() % (most - least + 1);
                // A file that was never synced may not be there at all.
                if (left == 0)
                    std::filesystem::remove(path);
                else
                    std::filesystem::resize_file(path, left);
            }
        }
    }
    // kill -9 before the write that `when` picks: what stands then is kept aside.
    void KillAt(const std::function<bool(const std::string& path)>& when) {
        options_.write = [this, when](int fd, const void* data, size_t size) -> ssize_t {
            if (!killed_ && when(PathOf(fd))) {
                killed_ = true;
                std::filesystem::copy(options_.dir, root_ + "/killed", std::filesystem::copy_options::recursive);
            }
            return write(fd, data, size);
        };
    }
    void OpenKilled() {
        ASSERT_TRUE(killed_);
        spool_.reset();
        std::filesystem::remove_all(options_.dir);
        std::filesystem::rename(root_ + "/killed", options_.dir);
        options_.write = {};
        spool_ = Open();
    }
    void AppendAll(std::vector<v1::Event> events) {
        for (v1::Event& event : events) {
            const Status status = spool_->Append(&event);
            ASSERT_TRUE(status.ok() || absl::IsAlreadyExists(status)) << status;
        }
    }
    void Seal(const std::string& id) {
        v1::Sandbox sandbox;
        sandbox.set_id(id);
        ASSERT_TRUE(spool_->Seal(sandbox).ok());
        ASSERT_TRUE(spool_->Flush().ok());
    }
    std::unique_ptr<Spool> spool_;
    std::map<std::string, uint64_t> on_disk_;
    bool killed_ = false;
};

TEST_F(SpoolPowerTest, NothingIsHandedOutThatIsNotOnTheDisk) {
    bool broken = true;
    options_.sync = [&](int fd) { return broken ? (errno = EIO, -1) : fdatasync(fd); };
    spool_ = Open();
    AppendAll({Telemetry("a", 1), Violation("a", 2)});
    ASSERT_TRUE(spool_->Flush().ok());
    EXPECT_FALSE(spool_->Next("r").has_value());
    EXPECT_GT(spool_->counters().write_errors.at("EIO"), 0u);
    broken = false;
    EXPECT_EQ(Drain(*spool_).size(), 2u);
}

TEST_F(SpoolPowerTest, ManySharedOneSync) {
    int syncs = 0;
    options_.sync = [&](int fd) { return ++syncs, fdatasync(fd); };
    options_.segment_bytes = 64 << 10;
    spool_ = Open();
    for (uint64_t i = 1; i <= 500; ++i) AppendAll({Telemetry("a", i)});
    ASSERT_TRUE(spool_->Flush().ok());
    EXPECT_EQ(Drain(*spool_).size(), 500u);
    EXPECT_LE(syncs, 2);
    EXPECT_EQ(spool_->counters().commits, 1u);
}

TEST_F(SpoolPowerTest, ReadersWaitForTheNextSyncAndNoLonger) {
    options_.commit_ns = 3'600'000'000'000;
    spool_ = Open();
    AppendAll({Telemetry("a", 1)});
    ASSERT_TRUE(spool_->Flush().ok());
    EXPECT_EQ(Drain(*spool_).size(), 1u) << "the first is at once";
    AppendAll({Telemetry("a", 2)});
    ASSERT_TRUE(spool_->Flush().ok());
    EXPECT_TRUE(Drain(*spool_).empty());
    ASSERT_TRUE(spool_->Sync().ok());
    EXPECT_EQ(Drain(*spool_).size(), 1u);
}

// What was handed out has its number for ever, whatever the disk lost of the rest; and each number that it lost is told.
TEST_F(SpoolPowerTest, ANumberHasOneContentAndNoneIsMissing) {
    uint64_t lost = 0, handed = 0;
    for (uint32_t seed = 1; seed <= 8; ++seed) {
        std::mt19937 random(seed);
        std::vector<v1::Event> all;
        std::set<uint64_t> had;
        int number = 0;
        spool_ = Open();
        for (int step = 0; step < 400; ++step) {
            const std::string sandbox(1, static_cast<char>('a' + random() % 3));
            switch (random() % 10) {
                default: {
                    v1::Event event = random() % 3 == 0 ? Finding(sandbox, ++number) : Telemetry(sandbox, 0, random() % 200);
                    if (random() % 3 == 0) event.set_verdict("deny");
                    event.set_id(absl::StrCat("e", ++number));
                    AppendAll({event});
                    break;
                }
                case 0:
                case 1:
                    ASSERT_TRUE(spool_->Flush().ok());
                    break;
                case 2:
                    if (random() % 6 > 0) break;
                    ASSERT_TRUE(spool_->Sync().ok());
                    break;
                case 3:
                    for (const v1::Event& event : Drain(*spool_)) all.push_back(event);
                    break;
                case 4:
                    if (random() % 6 > 0) break;
                    PowerFailure(random);
                    spool_ = Open();
                    break;
            }
        }
        for (const char* id : {"a", "b", "c"}) Seal(id);
        for (const v1::Event& event : Drain(*spool_)) all.push_back(event);
        std::stable_sort(all.begin(), all.end(),
                         [](const auto& x, const auto& y) { return x.export_seq() < y.export_seq(); });
        for (const auto& [sandbox, report] : Verify(all)) {
            EXPECT_EQ(report.conflicting, 0u) << "seed " << seed << " " << sandbox;
            EXPECT_EQ(report.missing, 0u) << "seed " << seed << " " << sandbox << " at " << report.first_fault;
            EXPECT_EQ(report.broken, 0u) << "seed " << seed << " " << sandbox << " at " << report.first_fault;
            lost += report.lost;
        }
        handed += all.size();
        spool_.reset();
        std::filesystem::remove_all(options_.dir);
        on_disk_.clear();
    }
    EXPECT_GT(handed, 500u);
    printf("[  FIGURE  ] %llu events handed out, %llu numbers told as lost\n", static_cast<unsigned long long>(handed),
           static_cast<unsigned long long>(lost));
}

// The rings have all of such a flush still: it comes again, under the same numbers, and nothing is lost.
TEST_F(SpoolPowerTest, AKillBetweenTwoLanesLosesNothingAndLeavesNoGap) {
    spool_ = Open();
    const std::vector<v1::Event> first = {Telemetry("a", 1), Violation("a", 2), Telemetry("b", 1)};
    AppendAll(first);
    ASSERT_TRUE(spool_->Flush().ok());
    EXPECT_EQ(Drain(*spool_).size(), 3u);
    spool_.reset();
    // Of the second flush telemetry is written, and nothing else.
    KillAt([](const std::string& path) { return absl::StrContains(path, "/1-"); });
    spool_ = Open();
    const std::vector<v1::Event> second = {Violation("a", 3), Telemetry("a", 4), Finding("a", 1), Telemetry("b", 2)};
    AppendAll(second);
    ASSERT_TRUE(spool_->Flush().ok());
    OpenKilled();
    EXPECT_EQ(spool_->counters().unfinished, 2u);
    EXPECT_TRUE(Drain(*spool_).empty()) << "nobody had them, and nobody gets half of it";
    for (const auto& events : {first, second}) AppendAll(events);
    for (const char* id : {"a", "b"}) Seal(id);
    std::vector<v1::Event> all = first;
    for (auto& [sandbox, report] : Verify(Drain(*spool_))) EXPECT_EQ(report.missing, sandbox == "a" ? 2u : 1u) << "of the first";
    spool_->Rewind("r");
    spool_.reset();
    std::filesystem::remove(options_.dir + "/acks");
    spool_ = Open();
    for (const auto& [sandbox, report] : Verify(Drain(*spool_)))
        EXPECT_TRUE(report.complete()) << sandbox << " at " << report.first_fault;
}

// Wherever the kill comes.
TEST_F(SpoolPowerTest, AKillAtAnyWriteLeavesNoGap) {
    for (int at = 1; at < 200; ++at) {
        int writes = 0;
        killed_ = false;
        options_.readers = {"r", "auditor"};
        KillAt([&](const std::string&) { return ++writes == at; });
        spool_ = Open();
        std::mt19937 random(9);
        std::vector<v1::Event> events;
        std::map<std::string, uint64_t> seq;
        for (int i = 0; i < 60; ++i) {
            const std::string id = i % 3 ? "a" : "b";
            events.push_back(random() % 3 ? Telemetry(id, ++seq[id], 100) : Violation(id, ++seq[id]));
            AppendAll({events.back()});
            ASSERT_TRUE(i % 4 > 0 || spool_->Flush().ok());
            if (i % 16 == 0) (void)Drain(*spool_);
        }
        if (!killed_) {  // there are no more
            EXPECT_GT(at, 20);
            spool_.reset();
            break;
        }
        OpenKilled();
        AppendAll(events);  // as the rings have them still
        for (const char* id : {"a", "b"}) Seal(id);
        for (const auto& [sandbox, report] : Verify(Drain(*spool_, true, "auditor")))
            EXPECT_TRUE(report.complete()) << "write " << at << ": " << sandbox << " at " << report.first_fault;
        spool_.reset();
        std::filesystem::remove_all(options_.dir);
        ASSERT_FALSE(HasFailure());
    }
}

// As a segment that somebody removed, or that a disk has lost.
TEST_F(SpoolPowerTest, ASegmentThatIsGoneIsTold) {
    spool_ = Open();
    for (uint64_t i = 1; i <= 60; ++i) {
        AppendAll({Telemetry("a", i, 100)});
        ASSERT_TRUE(spool_->Flush().ok());
    }
    spool_.reset();
    std::filesystem::remove(options_.dir + "/heads");
    ASSERT_GT(Segments(kTelemetry).size(), 2u);
    std::filesystem::remove(Segments(kTelemetry).at(1));
    spool_ = Open();
    Seal("a");
    const ChainReport report = Verify(Drain(*spool_))["a"];
    EXPECT_FALSE(report.faulty()) << report.missing << " missing, " << report.unexplained;
    EXPECT_GT(report.lost, 5u);
    EXPECT_EQ(report.events + report.lost, 62u) << "sixty, what tells of those lost, and the seal";
}

}  // namespace
}  // namespace stockade::pipeline
