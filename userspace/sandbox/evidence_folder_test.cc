#include "userspace/sandbox/evidence_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace stockade::sandbox {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

constexpr uint64_t kSecond = 1'000'000'000, kDay = 86'400 * kSecond;
constexpr uint64_t kNow = 1'790'000'000 * kSecond;

std::string Id(int number) { return absl::StrCat("sbx_01J0000000000000000000000", number); }

class Evidence : public ::testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_evidence_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        base_ = name;
    }
    void TearDown() override { fs::remove_all(base_); }
    std::string Make(int number, uint64_t wall_ns, size_t bytes = 100) {
        auto folder = *EvidenceFolder::Create(base_, Id(number), wall_ns);
        folder->Put("a", std::string(bytes, 'x'));
        EXPECT_TRUE(folder->Finish({}).ok());
        return folder->path();
    }
    std::string base_;
};

TEST_F(Evidence, AFolderSaysWhatIsInIt) {
    auto folder = *EvidenceFolder::Create(base_, Id(1), kNow);
    EXPECT_EQ(fs::path(folder->path()).filename(), "20260921T141320Z-" + Id(1));
    folder->Append("events.jsonl", "one\n");
    folder->Append("events.jsonl", "two\n");
    folder->Put("raw/argv.json", "[]");
    const auto digest = folder->Finish({{"events_dropped", "3"}});
    ASSERT_TRUE(digest.ok()) << digest.status();
    const auto manifest = ReadFile(folder->path() + "/manifest.json", 1 << 20);
    EXPECT_EQ(*digest, Sha256Hex(*manifest));
    EXPECT_THAT(*manifest, HasSubstr(absl::StrCat(R"({"name":"events.jsonl","bytes":8,"sha256":")", Sha256Hex("one\ntwo\n"), "\"}")));
    EXPECT_THAT(*manifest, HasSubstr("\"complete\":true"));
    EXPECT_THAT(*manifest, HasSubstr("\"events_dropped\":3"));
    for (const auto& entry : fs::recursive_directory_iterator(base_)) {
        struct stat info{};
        ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
        EXPECT_EQ(info.st_mode & 07777, S_ISDIR(info.st_mode) ? 0700u : 0600u) << entry.path();
    }
    EXPECT_FALSE(EvidenceFolder::Create(base_, Id(1), kNow).ok()) << "one folder for each";
    EXPECT_FALSE(EvidenceFolder::Reopen(base_, Id(1)).ok()) << "it is closed";
}

TEST_F(Evidence, TheNextWriterGoesOn) {
    {
        auto folder = *EvidenceFolder::Create(base_, Id(1), kNow);
        folder->Append("events.jsonl", "one\n");
        folder->Put("raw/argv.json", "[]");
    }
    auto folder = EvidenceFolder::Reopen(base_, Id(1));
    ASSERT_TRUE(folder.ok()) << folder.status();
    (*folder)->Append("events.jsonl", "two\n");
    ASSERT_TRUE((*folder)->Finish({}).ok());
    EXPECT_THAT(*ReadFile((*folder)->path() + "/manifest.json", 1 << 20), HasSubstr(Sha256Hex("one\ntwo\n")));
}

TEST_F(Evidence, WhatAKilledWriterLeftIsClosedAndSaysSo) {
    std::string path;
    {
        auto folder = *EvidenceFolder::Create(base_, Id(1), kNow);
        folder->Append("events.jsonl", "one\n");
        path = folder->path();
        (void)*EvidenceFolder::Create(base_, Id(2), kNow);
    }
    EXPECT_EQ(CloseUnfinished(base_, {Id(2)}), 1);
    EXPECT_THAT(*ReadFile(path + "/manifest.json", 1 << 20), HasSubstr("\"interrupted\":true"));
    EXPECT_TRUE(EvidenceFolder::Reopen(base_, Id(2)).ok());
    EXPECT_EQ(CloseUnfinished(base_, {}), 1);
    EXPECT_EQ(CloseUnfinished(base_, {}), 0);
}

TEST_F(Evidence, AFullDiskIsToldAndHoldsNothingUp) {
    auto folder = *EvidenceFolder::Create(base_, Id(1), kNow);
    folder->Put("a", "fits");
    // A file that takes nothing any more, as on a full disk.
    fs::create_symlink("/dev/full", folder->path() + "/b");
    folder->Append("b", "lost");
    const auto digest = folder->Finish({});
    EXPECT_EQ(digest.status().code(), absl::StatusCode::kDataLoss);
    const auto manifest = ReadFile(folder->path() + "/manifest.json", 1 << 20);
    EXPECT_THAT(*manifest, HasSubstr("\"complete\":false"));
    EXPECT_THAT(*manifest, HasSubstr("\"lost_bytes\":4"));
    EXPECT_THAT(*manifest, HasSubstr(Sha256Hex("fits")));
}

TEST_F(Evidence, RetentionByAgeAndSize) {
    const std::string old = Make(1, kNow - 40 * kDay), second = Make(2, kNow - 3 * kDay, 5000), third = Make(3, kNow - 2 * kDay, 5000), last = Make(4, kNow, 100);
    auto open = *EvidenceFolder::Create(base_, Id(5), kNow - 90 * kDay);
    fs::create_directories(base_ + "/somebody-elses");
    fs::create_directory_symlink("/etc", base_ + "/20200101T000000Z-sbx_X");
    Swept swept = SweepEvidence(base_, {.max_bytes = 0, .max_age_ns = 30 * kDay}, kNow);
    EXPECT_EQ(swept.removed, 1u);
    EXPECT_FALSE(fs::exists(old));
    EXPECT_EQ(swept.folders, 3u);
    swept = SweepEvidence(base_, {.max_bytes = 6000, .max_age_ns = 0}, kNow);
    EXPECT_EQ(swept.removed, 1u);
    EXPECT_FALSE(fs::exists(second)) << "the oldest goes first";
    EXPECT_TRUE(fs::exists(third));
    EXPECT_LE(swept.bytes, 6000u);
    EXPECT_TRUE(fs::exists(last));
    EXPECT_TRUE(fs::exists(open->path())) << "is being written";
    EXPECT_TRUE(fs::exists(base_ + "/somebody-elses"));
    EXPECT_TRUE(fs::exists("/etc/passwd"));
    EXPECT_TRUE(fs::is_symlink(base_ + "/20200101T000000Z-sbx_X"));
    EXPECT_EQ(SweepEvidence(base_, {}, kNow).removed, 0u);
}

}  // namespace
}  // namespace stockade::sandbox
