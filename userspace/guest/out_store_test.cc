#include "userspace/guest/out_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace stockade::guest {
namespace {

class OutStoreTest : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade-out.XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        top_ = name;
        ASSERT_EQ(mkdir((top_ + "/out").c_str(), 0700), 0);
        dir_ = *Fd::Open(top_ + "/out", O_RDONLY | O_DIRECTORY);
    }
    void TearDown() override { std::filesystem::remove_all(top_); }

    static Entry Of(const std::string& path, uint64_t size = 0, uint32_t mode = 0644,
                    bool directory = false) {
        Entry entry;
        entry.set_path(path);
        entry.set_size_bytes(size);
        entry.set_mode(mode);
        entry.set_directory(directory);
        return entry;
    }
    static Status Put(OutStore& store, const Entry& entry, const std::string& bytes = "") {
        SK_RETURN_IF_ERROR(store.Begin(entry));
        if (!bytes.empty()) SK_RETURN_IF_ERROR(store.Bytes(bytes));
        return store.Done();
    }

    std::string top_;
    Fd dir_;
};

TEST_F(OutStoreTest, FilesAndDirectoriesWithoutDangerousBits) {
    OutStore store(dir_.get(), {});
    ASSERT_TRUE(Put(store, Of("d", 0, 0, true)).ok());
    ASSERT_TRUE(Put(store, Of("d/f", 5, 06777), "hello").ok());
    ASSERT_TRUE(Put(store, Of("empty")).ok());
    EXPECT_EQ(*ReadFile(top_ + "/out/d/f", 100), "hello");
    struct stat st;
    ASSERT_EQ(stat((top_ + "/out/d/f").c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777, 0755u);
    EXPECT_EQ(store.report().files, 2u);
    EXPECT_EQ(store.report().directories, 1u);
    EXPECT_EQ(store.report().bytes, 5u);
}

TEST_F(OutStoreTest, PathsThatLeadOutAreRefused) {
    for (const char* path : {"", "/etc/passwd", "../x", "a/../../x", ".", "a/.", "a//b", "a/", ".."}) {
        OutStore store(dir_.get(), {});
        EXPECT_FALSE(Put(store, Of(path)).ok()) << path;
    }
    OutStore store(dir_.get(), {});
    EXPECT_FALSE(Put(store, Of(std::string("a\0b", 3))).ok());
    EXPECT_FALSE(Put(store, Of(std::string(256, 'n'))).ok());
    EXPECT_TRUE(std::filesystem::is_empty(top_ + "/out"));
    // The control: a plain name is written.
    EXPECT_TRUE(Put(store, Of("x")).ok());
    EXPECT_FALSE(std::filesystem::exists(top_ + "/x"));
}

TEST_F(OutStoreTest, ALinkInTheWayIsNotFollowed) {
    ASSERT_EQ(symlink(top_.c_str(), (top_ + "/out/l").c_str()), 0);
    OutStore store(dir_.get(), {});
    EXPECT_FALSE(Put(store, Of("l/x")).ok());
    EXPECT_FALSE(Put(store, Of("l/d", 0, 0755, true)).ok());
    EXPECT_FALSE(Put(store, Of("l")).ok());
    EXPECT_FALSE(std::filesystem::exists(top_ + "/x"));
    EXPECT_FALSE(std::filesystem::exists(top_ + "/d"));
}

TEST_F(OutStoreTest, ANameComesOnce) {
    OutStore store(dir_.get(), {});
    ASSERT_TRUE(Put(store, Of("f", 1), "1").ok());
    EXPECT_FALSE(Put(store, Of("f", 1), "2").ok());
    EXPECT_EQ(*ReadFile(top_ + "/out/f", 100), "1");
    ASSERT_TRUE(Put(store, Of("d", 0, 0755, true)).ok());
    EXPECT_FALSE(Put(store, Of("d", 0, 0755, true)).ok());
    EXPECT_FALSE(Put(store, Of("nowhere/f")).ok());
}

TEST_F(OutStoreTest, LimitsHold) {
    const OutLimits limits{.max_bytes = 10, .max_entries = 3, .max_depth = 1, .max_reported = 1};
    OutStore store(dir_.get(), limits);
    EXPECT_TRUE(Put(store, Of("a", 10), "0123456789").ok());
    EXPECT_FALSE(Put(store, Of("b", 1), "0").ok());
    EXPECT_FALSE(Put(store, Of("c", UINT64_MAX)).ok());
    EXPECT_FALSE(Put(store, Of("d")).ok());  // the fourth
    EXPECT_TRUE(CheckOutPath("a/b", 1).ok());
    EXPECT_FALSE(CheckOutPath("a/b/c", 1).ok());
    Skipped skipped;
    skipped.set_count(UINT64_MAX - 1);
    ASSERT_TRUE(store.AddSkipped(skipped).ok());
    ASSERT_TRUE(store.AddSkipped(skipped).ok());
    EXPECT_EQ(store.report().skipped_count, UINT64_MAX);
    EXPECT_EQ(store.report().skipped.size(), 1u);
}

}  // namespace
}  // namespace stockade::guest
