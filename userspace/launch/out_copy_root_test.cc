#include "userspace/launch/out_copy.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include <filesystem>
#include <map>

#include "userspace/base/sha256.h"
#include "userspace/launch/launch_testing.h"
#include "userspace/launch/mounts.h"

namespace stockade::launch {
namespace {

class OutCopy : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_out_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        base_ = name;
        source_ = base_ + "/source";
        target_ = base_ + "/target";
        ASSERT_EQ(mkdir(source_.c_str(), 0755), 0);
        ASSERT_EQ(mkdir(target_.c_str(), 0755), 0);
        ASSERT_EQ(chmod(base_.c_str(), 0755), 0);
        ASSERT_EQ(chown(target_.c_str(), kCaller, kCaller), 0);
    }
    void TearDown() override {
        std::error_code ignored;
        std::filesystem::remove_all(base_, ignored);
    }
    void Put(const std::string& path, const std::string& text) {
        Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        ASSERT_TRUE(file.ok()) << path;
        ASSERT_TRUE(WriteAll(file.get(), text).ok());
    }
    OutReport Copy(const OutLimits& limits = {}) {
        Fd source(open(source_.c_str(), O_PATH | O_CLOEXEC)),
            target(open(target_.c_str(), O_RDONLY | O_CLOEXEC));
        auto report = CopyOut(source.get(), target.get(), kCaller, kCaller, limits);
        EXPECT_TRUE(report.ok()) << report.status();
        return report.ok() ? *report : OutReport();
    }
    static std::map<std::string, std::string> Dropped(const OutReport& report) {
        std::map<std::string, std::string> out;
        for (const OutDropped& row : report.dropped) out[row.path] = row.reason;
        return out;
    }
    std::string Text(const std::string& path) {
        auto text = ReadFile(path, 1 << 20);
        return text.ok() ? *text : std::string(text.status().message());
    }

    static constexpr uid_t kCaller = 4711;
    std::string base_, source_, target_;
};

TEST_F(OutCopy, RegularFilesArriveOwnedByTheCaller) {
    std::filesystem::create_directories(source_ + "/a/b");
    Put(source_ + "/a/b/file", "hello");
    Put(source_ + "/tool", "#!");
    ASSERT_EQ(chmod((source_ + "/tool").c_str(), 06777), 0);
    Put(target_ + "/tool", "old");
    ASSERT_EQ(chown((target_ + "/tool").c_str(), kCaller, kCaller), 0);
    OutReport report = Copy();
    EXPECT_EQ(report.files, 2u);
    EXPECT_EQ(report.bytes, 7u);
    EXPECT_EQ(report.dropped_count, 0u);
    EXPECT_EQ(Text(target_ + "/a/b/file"), "hello");
    EXPECT_EQ(Text(target_ + "/tool"), "#!");
    struct stat st;
    ASSERT_EQ(stat((target_ + "/tool").c_str(), &st), 0);
    EXPECT_EQ(st.st_uid, kCaller);
    EXPECT_EQ(st.st_mode & 07777, 0755u);
}

TEST_F(OutCopy, WhatIsNoPlainFileIsRefusedByName) {
    Put(base_ + "/secret", "secret");
    ASSERT_EQ(symlink((base_ + "/secret").c_str(), (source_ + "/link").c_str()), 0);
    ASSERT_EQ(symlink("..", (source_ + "/up").c_str()), 0);
    ASSERT_EQ(link((base_ + "/secret").c_str(), (source_ + "/hard").c_str()), 0);
    ASSERT_EQ(mkfifo((source_ + "/fifo").c_str(), 0666), 0);
    ASSERT_EQ(mknod((source_ + "/device").c_str(), S_IFCHR | 0666, makedev(1, 5)), 0);
    Put(source_ + "/huge", "");
    ASSERT_EQ(truncate((source_ + "/huge").c_str(), 100ll << 30), 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, (source_ + "/socket").c_str(), sizeof(address.sun_path) - 1);
    Fd socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    Put(source_ + "/fine", "fine");
    OutReport report = Copy();
    EXPECT_EQ(report.files, 1u);
    const std::map<std::string, std::string> expected = {
        {"link", "symlink"}, {"up", "symlink"},    {"hard", "hard link"},
        {"fifo", "fifo"},    {"device", "device"}, {"huge", "over the size limit"},
        {"socket", "socket"}};
    EXPECT_EQ(Dropped(report), expected);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(target_), {}), 1);
}

// In a tmpfs of its own no link leads out, as it may from the directory of the test above.
TEST_F(OutCopy, HardLinksAndHolesOfASandboxArriveAsPlainFiles) {
    auto out = NewTmpfs(64 << 20, 100, "0700", 0, 0, kMountNosuid | kMountNodev);
    ASSERT_TRUE(out.ok()) << out.status();
    source_ = absl::StrCat("/proc/self/fd/", out->get());
    Put(source_ + "/one", "linked");
    ASSERT_EQ(link((source_ + "/one").c_str(), (source_ + "/two").c_str()), 0);
    Put(source_ + "/holes", "start");
    constexpr off_t kSize = 8 << 20;
    ASSERT_EQ(truncate((source_ + "/holes").c_str(), kSize), 0);
    Fd target(open(target_.c_str(), O_RDONLY | O_CLOEXEC));
    const auto copy = [&](const OutLimits& limits) {
        return *CopyOut(out->get(), target.get(), kCaller, kCaller, limits);
    };
    const OutReport report = copy({});
    EXPECT_EQ(Dropped(report), (std::map<std::string, std::string>{}));
    EXPECT_EQ(report.files, 3u);
    EXPECT_EQ(report.bytes, 12u + kSize);
    struct stat one, two, holes;
    ASSERT_EQ(stat((target_ + "/one").c_str(), &one), 0);
    ASSERT_EQ(stat((target_ + "/two").c_str(), &two), 0);
    ASSERT_EQ(stat((target_ + "/holes").c_str(), &holes), 0);
    EXPECT_EQ(Text(target_ + "/one"), "linked");
    EXPECT_EQ(Text(target_ + "/two"), "linked");
    EXPECT_NE(one.st_ino, two.st_ino);
    EXPECT_EQ(one.st_nlink, 1u);
    EXPECT_EQ(holes.st_size, kSize);
    EXPECT_EQ(Dropped(copy({.max_bytes = kSize - 1})),
              (std::map<std::string, std::string>{{"holes", "over the size limit"}}));
    // A part of a tmpfs, as /in could be, is not one's own.
    std::filesystem::create_directory(source_ + "/part");
    ASSERT_EQ(link((source_ + "/one").c_str(), (source_ + "/part/three").c_str()), 0);
    Fd part(open((source_ + "/part").c_str(), O_PATH | O_CLOEXEC));
    EXPECT_EQ(Dropped(*CopyOut(part.get(), target.get(), kCaller, kCaller)),
              (std::map<std::string, std::string>{{"three", "hard link"}}));
}

TEST_F(OutCopy, WhatIsInTheWayIsSaid) {
    std::filesystem::create_directories(source_ + "/dir");
    Put(source_ + "/dir/x", "x");
    Put(source_ + "/file", "new");
    Put(target_ + "/dir", "old");
    std::filesystem::create_directories(target_ + "/file/below");
    const std::map<std::string, std::string> expected = {
        {"dir", "target: a file or link of this name is in the way of the directory"},
        {"file", "target: a directory of this name is in the way of the file"}};
    EXPECT_EQ(Dropped(Copy()), expected);
    EXPECT_EQ(Text(target_ + "/dir"), "old");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(target_), {}), 2)
        << "no temporary file is left";
}

TEST_F(OutCopy, BoundsAreAnswers) {
    for (int i = 0; i < 6; ++i) Put(absl::StrCat(source_, "/f", i), "0123456789");
    std::filesystem::create_directories(source_ + "/d/d/d/d");
    Put(source_ + "/d/d/d/d/deep", "x");
    OutReport size = Copy({.max_bytes = 35});
    EXPECT_EQ(size.files, 4u);  // three of ten bytes and the deep one
    EXPECT_EQ(size.dropped_count, 3u);
    OutReport depth = Copy({.max_depth = 2});
    EXPECT_EQ(Dropped(depth), (std::map<std::string, std::string>{{"d/d/d", "over the limit of depth"}}));
    OutReport count = Copy({.max_entries = 3, .max_reported = 1});
    EXPECT_LE(count.files, 3u);
    EXPECT_GE(count.dropped_count, 1u);
    EXPECT_EQ(count.dropped.size(), 1u);
}

TEST_F(OutCopy, TargetLinksLeadNowhere) {
    std::filesystem::create_directories(base_ + "/elsewhere");
    ASSERT_EQ(chmod((base_ + "/elsewhere").c_str(), 0777), 0);
    Put(base_ + "/victim", "precious");
    ASSERT_EQ(chmod((base_ + "/victim").c_str(), 0666), 0);
    ASSERT_EQ(symlink((base_ + "/elsewhere").c_str(), (target_ + "/dir").c_str()), 0);
    ASSERT_EQ(symlink((base_ + "/victim").c_str(), (target_ + "/file").c_str()), 0);
    std::filesystem::create_directories(source_ + "/dir");
    Put(source_ + "/dir/x", "x");
    Put(source_ + "/file", "new");
    OutReport report = Copy();
    EXPECT_EQ(Dropped(report).count("dir"), 1u);
    EXPECT_TRUE(std::filesystem::is_empty(base_ + "/elsewhere"));
    EXPECT_EQ(Text(base_ + "/victim"), "precious");
    EXPECT_EQ(Text(target_ + "/file"), "new");
}

TEST_F(OutCopy, WritesOnlyWhereTheCallerMay) {
    ASSERT_EQ(chown(target_.c_str(), 0, 0), 0);
    Put(source_ + "/file", "new");
    OutReport report = Copy();
    EXPECT_EQ(report.files, 0u);
    EXPECT_EQ(Dropped(report), (std::map<std::string, std::string>{{"file", "target: Permission denied"}}));
    EXPECT_TRUE(std::filesystem::is_empty(target_));
}

// One thread swaps a file for a link to a secret as fast as it can; no copy may hold it. A symbolic link is refused by
// each opening alone; a hard link only because what is read is what was looked at.
TEST_F(OutCopy, SwapRace) {
    Put(base_ + "/hidden", "secret");
    Put(source_ + "/plain", "plain");
    const std::string linked = source_ + "/linked";
    for (const bool hard : {false, true}) {
        const std::string hidden = base_ + "/hidden";
        ASSERT_EQ(hard ? link(hidden.c_str(), linked.c_str()) : symlink(hidden.c_str(), linked.c_str()), 0);
        std::atomic<bool> stop{false};
        std::thread swapper([&] {
            while (!stop) {
                (void)renameat2(AT_FDCWD, (source_ + "/plain").c_str(), AT_FDCWD, linked.c_str(),
                                RENAME_EXCHANGE);
            }
        });
        uint32_t files = 0, refused = 0, swapped = 0, secrets = 0;
        for (int i = 0; i < 2000; ++i) {
            OutReport report = Copy();
            files += report.files;
            refused += static_cast<uint32_t>(report.dropped_count);
            for (const auto& [path, reason] : Dropped(report))
                swapped += reason == "swapped while it was copied";
            for (const char* name : {"/plain", "/linked"}) secrets += Text(target_ + name) == "secret";
        }
        stop = true;
        swapper.join();
        EXPECT_EQ(secrets, 0u) << (hard ? "hard" : "symbolic");
        EXPECT_GT(files, 0u);
        EXPECT_GT(refused, 0u);
        if (hard) {
            EXPECT_GT(swapped, 0u) << "the race was never met";
        }
        // Whichever of the two is the link now.
        std::filesystem::remove(linked);
        std::filesystem::remove(source_ + "/plain");
        Put(source_ + "/plain", "plain");
    }
}

TEST_F(OutCopy, FromALiveSandboxAfterItsEnd) {
    NativeSpec spec = MakeSpec({"probe", "write", "/out/result", "symlink", "/etc/passwd", "/out/link",
                                "mkfifo", "/out/fifo", "truncate", "/out/bomb", "107374182400"});
    auto sandbox = NativeSandbox::Create(std::move(spec));
    ASSERT_TRUE(sandbox.ok()) << sandbox.status();
    ASSERT_TRUE((*sandbox)->Release().ok());
    ASSERT_EQ(*(*sandbox)->Wait(), 0);
    ASSERT_TRUE((*sandbox)->Destroy().ok());
    Fd target(open(target_.c_str(), O_RDONLY | O_CLOEXEC));
    auto report = CopyOut((*sandbox)->out_fd(), target.get(), kCaller, kCaller);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->files, 1u);
    EXPECT_EQ(Text(target_ + "/result"), "data");
    EXPECT_EQ(Dropped(*report), (std::map<std::string, std::string>{
                                    {"link", "symlink"}, {"fifo", "fifo"}, {"bomb", "over the size limit"}}));
}

TEST_F(OutCopy, OnlyWhatARuleCoversLeaves) {
    std::filesystem::create_directories(source_ + "/report/below");
    std::filesystem::create_directories(source_ + "/other/deep");
    Put(source_ + "/report/1.txt", "one");
    Put(source_ + "/report/large.txt", "too large");
    Put(source_ + "/report/below/2.txt", "not covered");
    Put(source_ + "/other/deep/x", "not covered");
    Put(source_ + "/a.log", "a");
    Put(source_ + "/b.log", "b");
    Put(source_ + "/result.json", "{}");
    ASSERT_EQ(symlink("/etc/passwd", (source_ + "/report/l.txt").c_str()), 0);
    OutLimits limits;
    limits.left_out = "result.json";
    limits.rules = {{.pattern = *policy::ParsePattern("/report/*.txt"), .max_bytes = 4, .max_files = 9}, {.pattern = *policy::ParsePattern("/*.log"), .max_bytes = 4, .max_files = 1}};
    const OutReport report = Copy(limits);
    EXPECT_EQ(report.files, 2u);
    ASSERT_EQ(report.copied.size(), 2u);
    for (const OutCopied& copied : report.copied) EXPECT_EQ(copied.sha256, Sha256(Text(target_ + "/" + copied.path))) << copied.path;
    const std::map<std::string, std::string> dropped = Dropped(report);
    EXPECT_EQ(dropped.size(), 5u);
    EXPECT_EQ(dropped.at("report/large.txt"), "over the 4 bytes that are declared");
    EXPECT_EQ(dropped.at("report/l.txt"), "symlink");
    EXPECT_EQ(dropped.at("report/below/2.txt"), "not declared");
    EXPECT_EQ(dropped.at("other/deep/x"), "not declared");
    EXPECT_EQ(dropped.count("result.json"), 0u);
    EXPECT_TRUE(std::filesystem::exists(target_ + "/report/1.txt"));
    EXPECT_FALSE(std::filesystem::exists(target_ + "/other")) << "a directory that nobody has declared";
    EXPECT_FALSE(std::filesystem::exists(target_ + "/report/below"));
    // No rule at all lets nothing leave; no list lets all.
    limits.rules.emplace();
    std::filesystem::remove_all(target_ + "/report");
    EXPECT_EQ(Copy(limits).files, 0u);
    EXPECT_EQ(Copy().files, 7u);
}

TEST_F(OutCopy, AResultIsOneRegularFile) {
    Put(source_ + "/r", "{}");
    Put(base_ + "/secret", "secret");
    ASSERT_EQ(symlink((base_ + "/secret").c_str(), (source_ + "/link").c_str()), 0);
    ASSERT_EQ(mkfifo((source_ + "/fifo").c_str(), 0666), 0);
    ASSERT_EQ(mkdir((source_ + "/dir").c_str(), 0777), 0);
    Put(source_ + "/huge", "");
    ASSERT_EQ(truncate((source_ + "/huge").c_str(), 100ll << 30), 0);
    const Fd source(open(source_.c_str(), O_PATH | O_CLOEXEC));
    EXPECT_EQ(*ReadOut(source.get(), "r", 2), "{}");
    EXPECT_FALSE(ReadOut(source.get(), "r", 1).ok());
    for (const char* name : {"link", "fifo", "dir", "huge", "absent", "../secret"}) EXPECT_FALSE(ReadOut(source.get(), name, 1 << 20).ok()) << name;
}

}  // namespace
}  // namespace stockade::launch
