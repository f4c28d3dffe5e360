// The guest's half and the host's half of /out, over a pair of sockets in place of the port.
#include "userspace/guest/init_archive.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "userspace/guest/conversation.h"

namespace stockade::guest {
namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

class StoreSink : public GuestSink {
  public:
    explicit StoreSink(OutStore& store) : store_(store) {}
    Status Stdout(absl::string_view) override { return absl::OkStatus(); }
    Status Stderr(absl::string_view) override { return absl::OkStatus(); }
    Status Records(absl::string_view) override { return absl::OkStatus(); }
    Status OutEntry(const Entry& entry) override { return store_.Begin(entry); }
    Status OutBytes(absl::string_view bytes) override { return store_.Bytes(bytes); }
    Status OutDone() override { return store_.Done(); }
    Status OutSkipped(const Skipped& skipped) override { return store_.AddSkipped(skipped); }

  private:
    OutStore& store_;
};

class InitArchiveTest : public testing::Test {
  protected:
    void SetUp() override {
        // As init does: the host may close its end midway.
        ASSERT_NE(signal(SIGPIPE, SIG_IGN), SIG_ERR);
        char name[] = "/tmp/stockade-archive.XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        top_ = name;
        std::filesystem::create_directories(top_ + "/from");
        std::filesystem::create_directories(top_ + "/to");
    }
    void TearDown() override { std::filesystem::remove_all(top_); }

    // Archives from/ and stores it in to/; the host keeps to `host`, the guest to `guest`.
    Status Carry(const OutLimits& guest, const OutLimits& host) {
        int fds[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
            return absl::InternalError("socketpair");
        Fd near(fds[0]);
        Status archived;
        std::thread thread([this, &archived, &guest, fd = fds[1]] {
            GuestPort port(Port::kOut, Fd(fd));
            const Fd from = *Fd::Open(top_ + "/from", O_RDONLY | O_DIRECTORY);
            archived = port.SayHello("test");
            if (archived.ok()) archived = ArchiveOut(from.get(), guest, port);
            if (archived.ok()) archived = port.SayEnd();
        });
        const Status stored = Store(near, host);
        near.Reset();
        thread.join();
        return stored.ok() ? archived : stored;
    }
    Status Store(const Fd& near, const OutLimits& host) {
        const Fd to = *Fd::Open(top_ + "/to", O_RDONLY | O_DIRECTORY);
        OutStore store(to.get(), host);
        StoreSink sink(store);
        Conversation talk(sink);
        // The other ports' hellos, so that the order to run can have been given.
        for (Port port : {Port::kControl, Port::kStdio, Port::kEvents}) {
            Hello hello;
            hello.set_port(static_cast<uint32_t>(port));
            SK_RETURN_IF_ERROR(talk.Take(port, EncodeFrame(Kind::kHello, hello.SerializeAsString())));
        }
        talk.RunSent();
        std::string buffer(1000, '\0');
        ssize_t n;
        Status status;
        while (status.ok() && (n = read(near.get(), buffer.data(), buffer.size())) > 0) {
            status = talk.Take(Port::kOut, absl::string_view(buffer.data(), static_cast<size_t>(n)));
        }
        report_ = store.report();
        if (status.ok() && talk.PortsWithoutEnd() != "control, stdio, events")
            return absl::InternalError("it did not end");
        return status;
    }
    void Write(const std::string& name, const std::string& bytes) {
        ASSERT_TRUE(ReplaceFile(top_ + "/from/" + name, bytes, 0640).ok());
    }

    std::string top_;
    OutReport report_;
};

TEST_F(InitArchiveTest, ATreeArrivesAndTrapsDoNot) {
    std::filesystem::create_directories(top_ + "/from/a/b");
    const std::string big(200000, 'b');
    Write("a/b/big", big);
    Write("empty", "");
    Write(".hidden", "h");
    ASSERT_EQ(symlink("/etc/passwd", (top_ + "/from/link").c_str()), 0);
    ASSERT_EQ(symlink(".", (top_ + "/from/a/loop").c_str()), 0);
    ASSERT_EQ(mkfifo((top_ + "/from/fifo").c_str(), 0600), 0);
    ASSERT_EQ(link((top_ + "/from/a/b/big").c_str(), (top_ + "/from/second").c_str()), 0);
    const Status status = Carry({}, {});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(*ReadFile(top_ + "/to/a/b/big", 1 << 20), big);
    EXPECT_EQ(*ReadFile(top_ + "/to/second", 1 << 20), big);
    EXPECT_EQ(*ReadFile(top_ + "/to/.hidden", 10), "h");
    EXPECT_EQ(report_.files, 4u);
    EXPECT_EQ(report_.directories, 2u);
    EXPECT_THAT(report_.skipped, UnorderedElementsAre(Pair("link", "symlink"), Pair("a/loop", "symlink"),
                                                      Pair("fifo", "fifo")));
    EXPECT_EQ(report_.skipped_count, 3u);
}

TEST_F(InitArchiveTest, WhatIsOverALimitIsTold) {
    std::filesystem::create_directories(top_ + "/from/d1/d2/d3");
    Write("a", std::string(60, 'a'));
    Write("b", std::string(60, 'b'));
    Write("c", std::string(40, 'c'));
    const OutLimits limits{.max_bytes = 100, .max_entries = 4, .max_depth = 1, .max_reported = 1};
    const Status status = Carry(limits, limits);
    ASSERT_TRUE(status.ok()) << status;
    // a, c, d1 and d1/d2; not b (bytes) and what lies deeper.
    EXPECT_EQ(report_.files, 2u);
    EXPECT_EQ(report_.bytes, 100u);
    EXPECT_EQ(report_.directories, 2u);
    EXPECT_EQ(report_.skipped_count, 2u);
    EXPECT_EQ(report_.skipped,
              (std::vector<std::pair<std::string, std::string>>{{"b", "over the size limit"}}));
}

TEST_F(InitArchiveTest, AGuestThatDoesNotKeepToTheLimitsIsRefused) {
    Write("a", std::string(200, 'a'));
    EXPECT_FALSE(Carry({}, {.max_bytes = 100}).ok());
    EXPECT_FALSE(std::filesystem::exists(top_ + "/to/a"));
}

}  // namespace
}  // namespace stockade::guest
