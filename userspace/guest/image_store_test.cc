#include "userspace/guest/image_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace stockade::guest {
namespace {

class ImageStoreTest : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade-images.XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        top_ = name;
        for (const char* tree : {"/one", "/two"}) {
            std::filesystem::create_directories(top_ + tree + "/bin");
            ASSERT_TRUE(ReplaceFile(top_ + tree + "/bin/tool", "tool", 0755).ok());
            std::filesystem::create_symlink("tool", top_ + tree + "/bin/link");
        }
        // What is no content: times and owners.
        const timespec old[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
        ASSERT_EQ(utimensat(AT_FDCWD, (top_ + "/two/bin/tool").c_str(), old, 0), 0);
        auto store = ImageStore::Create(top_ + "/store");
        ASSERT_TRUE(store.ok()) << store.status();
        store_ = std::make_unique<ImageStore>(*std::move(store));
    }
    void TearDown() override { std::filesystem::remove_all(top_); }

    std::string top_;
    std::unique_ptr<ImageStore> store_;
};

TEST_F(ImageStoreTest, TheSameTreeIsTheSameImage) {
    auto first = store_->Root(top_ + "/one");
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_FALSE(first->was_there);
    auto again = store_->Root(top_ + "/two");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(again->was_there);
    EXPECT_EQ(first->sha256, again->sha256);
    // Made anew it has the same bytes.
    ASSERT_EQ(unlink(store_->PathOf(*first).c_str()), 0);
    auto anew = store_->Root(top_ + "/two");
    ASSERT_TRUE(anew.ok()) << anew.status();
    EXPECT_FALSE(anew->was_there);
    EXPECT_EQ(anew->sha256, first->sha256);
    // Without the places of a root it is another one.
    auto input = store_->Input(top_ + "/one");
    ASSERT_TRUE(input.ok()) << input.status();
    EXPECT_NE(input->sha256, first->sha256);
}

TEST_F(ImageStoreTest, AnyChangeIsAnotherImage) {
    const std::string before = *HashTree(top_ + "/one");
    EXPECT_EQ(*HashTree(top_ + "/two"), before);
    ASSERT_EQ(chmod((top_ + "/one/bin/tool").c_str(), 0700), 0);
    EXPECT_NE(*HashTree(top_ + "/one"), before);
    ASSERT_EQ(chmod((top_ + "/one/bin/tool").c_str(), 0755), 0);
    EXPECT_EQ(*HashTree(top_ + "/one"), before);
    ASSERT_EQ(rename((top_ + "/one/bin/tool").c_str(), (top_ + "/one/bin/tooI").c_str()), 0);
    EXPECT_NE(*HashTree(top_ + "/one"), before);
    ASSERT_EQ(mkfifo((top_ + "/two/fifo").c_str(), 0600), 0);
    EXPECT_FALSE(HashTree(top_ + "/two").ok());
}

TEST_F(ImageStoreTest, OneFlippedByteIsRefused) {
    auto image = store_->Root(top_ + "/one");
    ASSERT_TRUE(image.ok()) << image.status();
    ASSERT_TRUE(store_->Open(*image).ok());
    const std::string path = store_->PathOf(*image);
    ASSERT_EQ(chmod(path.c_str(), 0644), 0);
    Fd fd = *Fd::Open(path, O_RDWR);
    char byte = 0;
    ASSERT_EQ(pread(fd.get(), &byte, 1, 2000), 1);
    byte = static_cast<char>(byte ^ 1);
    ASSERT_EQ(pwrite(fd.get(), &byte, 1, 2000), 1);
    EXPECT_EQ(store_->Open(*image).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ImageStoreTest, APlaceThatIsAFileIsRefused) {
    ASSERT_TRUE(ReplaceFile(top_ + "/one/out", "", 0644).ok());
    EXPECT_EQ(store_->Root(top_ + "/one").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ImageStoreTest, AToolThatFailsLeavesNothing) {
    EXPECT_FALSE(store_->Root(top_ + "/nothing-here").ok());
    EXPECT_TRUE(std::filesystem::is_empty(top_ + "/store/blobs"));
    EXPECT_TRUE(std::filesystem::is_empty(top_ + "/store/made"));
}

}  // namespace
}  // namespace stockade::guest
