// The spool after what happens to disks and processes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <set>

#include "userspace/base/fd.h"
#include "userspace/pipeline/spool_testing.h"

namespace stockade::pipeline {
namespace {

using testing::HasSubstr;

class SpoolFaultsTest : public SpoolTest {
  protected:
    std::string Read(const std::string& path) { return *ReadFile(path, 16 << 20); }
    void Write(const std::string& path, absl::string_view bytes) {
        std::ofstream out(path, std::ios::binary | std::ios::trunc);
        out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    void Fill(Spool& spool, const std::string& sandbox, uint64_t from, uint64_t to) {
        for (uint64_t i = from; i <= to; ++i) {
            v1::Event event = Telemetry(sandbox, i);
            ASSERT_TRUE(spool.Append(&event).ok());
        }
        ASSERT_TRUE(spool.Flush().ok());
    }
};

TEST_F(SpoolFaultsTest, ACutAtEveryByteOfTheLastRecordCostsThatRecordAlone) {
    {
        auto spool = Open();
        Fill(*spool, "a", 1, 3);
    }
    const std::string path = Segments(kTelemetry).at(0);
    const std::string whole = Read(path);
    std::vector<size_t> ends;
    SpoolRecord record;
    for (size_t at = kFileMagic.size(); ParseRecord(whole, &at, &record) == Parsed::kRecord;) {
        if (record.lane != kMark) ends.push_back(at);
    }
    ASSERT_EQ(ends.size(), 3u);
    for (size_t cut = ends[1]; cut <= ends[2]; ++cut) {
        Write(path, absl::string_view(whole).substr(0, cut));
        auto spool = Open();
        const bool lost = cut < ends[2];
        EXPECT_EQ(spool->counters().torn, lost && cut > ends[1] ? 1u : 0u) << cut;
        // The record was in no ring's release: it is appended again, under the same number.
        if (lost) Fill(*spool, "a", 3, 3);
        Fill(*spool, "a", 4, 4);
        const auto events = Drain(*spool);
        EXPECT_THAT(Ids(events), testing::ElementsAre("a.1", "a.2", "a.3", "a.4")) << cut;
        const ChainReport report = Verify(events)["a"];
        EXPECT_FALSE(report.faulty()) << cut;
        EXPECT_EQ(report.events, 4u);
        spool.reset();
        std::filesystem::remove_all(options_.dir);
        auto fresh = Open();  // the folder as it was before the cut
        Fill(*fresh, "a", 1, 3);
        fresh.reset();
        ASSERT_EQ(Read(path).size(), whole.size());
    }
}

TEST_F(SpoolFaultsTest, AnyFlippedBitCostsOneRecordAndIsTold) {
    {
        auto spool = Open();
        Fill(*spool, "a", 1, 3);
        Fill(*spool, "b", 1, 1);
    }
    const std::string path = Segments(kTelemetry).at(0);
    const std::string whole = Read(path);
    for (size_t bit = 0; bit < whole.size() * 8; bit += 37) {
        std::string flipped = whole;
        flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
        Write(path, flipped);
        auto spool = Open();
        const SpoolCounters counters = spool->counters();
        const bool in_last = bit / 8 >= whole.size() - 150;
        EXPECT_GE(counters.lost_damaged + counters.torn, 1u) << bit;
        Fill(*spool, "a", 4, 4);
        const auto events = Drain(*spool);
        uint64_t records = 0, told = 0;
        for (const v1::Event& event : events) (event.has_lost() ? told : records) += 1;
        EXPECT_GE(records, 4u) << bit;  // of five
        EXPECT_TRUE(told > 0 || in_last) << bit;
        // No number twice: a reader would take the second for a forgery.
        for (const auto& [sandbox, report] : Verify(events)) EXPECT_EQ(report.conflicting, 0u) << bit;
        spool.reset();
        for (const auto& entry : std::filesystem::directory_iterator(options_.dir))
            std::filesystem::remove(entry.path());
        Write(path, whole);
    }
}

TEST_F(SpoolFaultsTest, DamageThatAReaderMeetsIsToldToo) {
    auto spool = Open();
    Fill(*spool, "a", 1, 100);
    const std::string path = Segments(kTelemetry).at(0);
    std::string bytes = Read(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    Write(path, bytes);
    auto events = Drain(*spool);
    EXPECT_EQ(events.size(), 99u);
    EXPECT_EQ(spool->counters().lost_damaged, 1u);
    ASSERT_TRUE(spool->Sync().ok());
    const auto told = Drain(*spool);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].lost().cause(), "damaged");
    EXPECT_EQ(Verify(events)["a"].missing, 1u) << "and whoever verifies sees which it was";
}

TEST_F(SpoolFaultsTest, ADamagedSnapshotOfHeadsIsAnErrorAndNoSecondNumberOne) {
    {
        auto spool = Open();
        for (uint64_t i = 1; i < 100; ++i) Fill(*spool, "a", i, i);  // several segments
    }
    std::string heads = Read(options_.dir + "/heads");
    heads[heads.size() / 2] = static_cast<char>(heads[heads.size() / 2] ^ 2);
    Write(options_.dir + "/heads", heads);
    EXPECT_THAT(std::string(Spool::Open(options_).status().message()), HasSubstr("heads is damaged"));
    // What was acknowledged matters less: without it all comes again.
    std::filesystem::remove(options_.dir + "/heads");
    Write(options_.dir + "/acks", "nonsense");
    auto spool = Open();
    EXPECT_EQ(Drain(*spool).size(), 99u);
}

// A disk with room for some bytes, that then gives an errno.
struct Disk {
    size_t room = SIZE_MAX;
    int error = ENOSPC;
    WriteFn Fn() {
        return [this](int fd, const void* data, size_t size) -> ssize_t {
            if (room == 0) return errno = error, -1;
            const size_t part = std::min(room, size);
            if (room != SIZE_MAX) room -= part;
            return write(fd, data, part);
        };
    }
};

TEST_F(SpoolFaultsTest, AFullDiskGivesUpTheOldestAndGoesOn) {
    Disk disk;
    options_.write = disk.Fn();
    auto spool = Open();
    for (uint64_t i = 1; i <= 200; ++i) Fill(*spool, "a", i, i);
    disk.room = 100;  // cuts a record in the middle
    v1::Event event = Telemetry("a", 201, 300);
    ASSERT_TRUE(spool->Append(&event).ok());
    const Status status = spool->Flush();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("ENOSPC"));
    EXPECT_GE(spool->counters().write_errors.at("ENOSPC"), 1u);
    const uint64_t lost = spool->counters().lost_full;
    EXPECT_GT(lost, 0u) << "what is oldest was to make room";
    disk.room = SIZE_MAX;
    ASSERT_TRUE(spool->Flush().ok());
    const auto events = Drain(*spool);
    const ChainReport report = Verify(events)["a"];
    EXPECT_FALSE(report.faulty()) << report.missing << " missing at " << report.first_fault;
    EXPECT_EQ(report.lost, lost);
    EXPECT_EQ(spool->counters().lost_damaged, 0u) << "half a record was taken back";
}

TEST_F(SpoolFaultsTest, ADiskThatTakesNothingIsToldToWhoeverAppends) {
    Disk disk{.room = 0, .error = EROFS};
    options_.write = disk.Fn();
    options_.buffer_bytes = 2000;
    auto spool = Open();
    uint64_t taken = 0;
    Status status;
    while (status.ok()) {
        v1::Event event = Telemetry("a", taken + 1);
        status = spool->Append(&event);
        taken += status.ok();
        EXPECT_EQ(event.export_seq(), status.ok() ? taken : 0) << "what is not taken has no number";
        ASSERT_LT(taken, 100u);
    }
    EXPECT_TRUE(absl::IsResourceExhausted(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("EROFS"));
    EXPECT_EQ(spool->counters().refused, 1u);
    EXPECT_GE(spool->counters().write_errors.at("EROFS"), 1u);
    disk.room = SIZE_MAX;
    Fill(*spool, "a", taken + 1, taken + 1);
    const auto events = Drain(*spool);
    EXPECT_EQ(events.size(), taken + 1);
    EXPECT_FALSE(Verify(events)["a"].faulty());
}

// Without descriptors or memory for a while, which is no full disk and no end of a segment.
TEST_F(SpoolFaultsTest, WithoutADescriptorNothingIsSkippedAndNothingGivenUp) {
    bool failing = false;
    options_.write = [&](int fd, const void* bytes, size_t size) -> ssize_t {
        if (!failing) return write(fd, bytes, size);
        errno = ENOMEM;
        return -1;
    };
    auto spool = Open();
    for (uint64_t i = 1; i <= 100; ++i) Fill(*spool, "a", i, i);
    ASSERT_GT(Segments(kTelemetry).size(), 2u);
    v1::Event violation = Violation("a", 101);  // behind them, of a lane that is still in memory
    ASSERT_TRUE(spool->Append(&violation).ok());
    failing = true;
    EXPECT_FALSE(spool->Flush().ok());
    failing = false;
    ASSERT_TRUE(spool->Flush().ok());

    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const int free = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(free);
    const rlimit none{.rlim_cur = static_cast<rlim_t>(free), .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const bool handed = spool->Next("r").has_value();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_FALSE(handed);
    EXPECT_GT(spool->counters().write_errors["EMFILE"], 0u);

    const auto events = Drain(*spool);
    EXPECT_EQ(events.size(), 101u);
    EXPECT_FALSE(Verify(events)["a"].faulty());
    EXPECT_EQ(spool->counters().lost_full, 0u);
    EXPECT_EQ(spool->counters().lost_damaged, 0u);
}

TEST_F(SpoolFaultsTest, AFolderThatCannotBeMadeIsAClearError) {
    options_.dir = root_ + "/node.key/spool";
    EXPECT_THAT(std::string(Spool::Open(options_).status().message()), HasSubstr("ENOTDIR"));
}

TEST_F(SpoolFaultsTest, AnEventLargerThanARecordIsRefused) {
    auto spool = Open();
    v1::Event event = Telemetry("a", 1, kMaxRecordBytes);
    EXPECT_TRUE(absl::IsInvalidArgument(spool->Append(&event)));
    EXPECT_EQ(spool->counters().refused, 1u);
}

// Against a list in memory: random appends, flushes, reads, acknowledgements in random order, rewinds,
// and processes that die with what they had not flushed.
TEST_F(SpoolFaultsTest, DoesWhatASimpleListDoes) {
    for (uint32_t seed = 1; seed <= 12; ++seed) {
        std::mt19937 random(seed);
        std::vector<std::string> model;  // ids, in order, that are flushed
        std::vector<std::string> buffered;
        std::map<std::string, uint64_t> next;  // kernel_seq by sandbox
        std::map<uint64_t, std::string> handed;
        std::vector<v1::Event> all;  // each event when it is first handed out
        std::set<std::string> seen, acked;
        auto spool = Open();
        const auto crash = [&] {
            // kill -9: the destructor must not write what the process would have lost.
            const std::string copy = root_ + "/copy";
            std::filesystem::copy(options_.dir, copy, std::filesystem::copy_options::recursive);
            spool.reset();
            std::filesystem::remove_all(options_.dir);
            std::filesystem::rename(copy, options_.dir);
            spool = Open();
            for (const std::string& id : buffered) --next[id.substr(0, 1)];  // the ring still has them
            buffered.clear();
            handed.clear();
        };
        for (int step = 0; step < 600; ++step) {
            switch (random() % 12) {
                default: {
                    const std::string sandbox(1, static_cast<char>('a' + random() % 3));
                    v1::Event event = random() % 4 ? Telemetry(sandbox, ++next[sandbox], random() % 200)
                                                   : Violation(sandbox, ++next[sandbox]);
                    ASSERT_TRUE(spool->Append(&event).ok());
                    buffered.push_back(event.id());
                    break;
                }
                case 0:
                case 1:
                    ASSERT_TRUE(spool->Flush().ok());
                    model.insert(model.end(), buffered.begin(), buffered.end());
                    buffered.clear();
                    break;
                case 2:
                case 3:
                case 4:
                    if (const auto record = spool->Next("r")) {
                        v1::Event event;
                        ASSERT_TRUE(event.ParseFromString(record->payload));
                        handed[record->position] = event.id();
                        if (seen.insert(event.id()).second) all.push_back(event);
                    }
                    break;
                case 5:
                case 6:
                    if (!handed.empty()) {
                        auto it = handed.begin();
                        std::advance(it, random() % handed.size());
                        spool->Ack("r", it->first);
                        acked.insert(it->second);
                        handed.erase(it);
                    }
                    break;
                case 7:
                    if (random() % 8 > 0) break;
                    ASSERT_TRUE(spool->Sync().ok());
                    model.insert(model.end(), buffered.begin(), buffered.end());
                    buffered.clear();
                    break;
                case 8:
                    if (random() % 8 == 0) spool->Rewind("r"), handed.clear();
                    break;
                case 9:
                    if (random() % 20 == 0) crash();
                    break;
            }
        }
        ASSERT_TRUE(spool->Flush().ok());
        model.insert(model.end(), buffered.begin(), buffered.end());
        spool->Rewind("r");
        for (const v1::Event& event : Drain(*spool)) {
            if (seen.insert(event.id()).second) all.push_back(event);
        }
        // What was flushed came, once or more, and first in the order of the list.
        EXPECT_EQ(Ids(all), model) << "seed " << seed;
        for (const auto& [sandbox, report] : Verify(all)) {
            EXPECT_FALSE(report.faulty())
                << "seed " << seed << " " << sandbox << " at " << report.first_fault;
        }
        spool.reset();
        std::filesystem::remove_all(options_.dir);
    }
}

}  // namespace
}  // namespace stockade::pipeline
