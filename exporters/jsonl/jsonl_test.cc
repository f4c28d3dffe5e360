#include "exporters/jsonl/jsonl.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "exporters/registry.h"
#include "userspace/base/clock.h"

namespace stockade::exporters {
namespace {

v1::Event Make(uint64_t seq) {
    v1::Event event;
    event.set_kernel_seq(seq);
    return event;
}

class JsonlFileTest : public testing::Test {
  protected:
    JsonlFileTest() {
        char name[] = "/tmp/jsonl_test_XXXXXX";
        Fd fd(mkstemp(name));
        path_ = name;
    }
    ~JsonlFileTest() override { unlink(path_.c_str()); }
    std::string Content() { return *ReadFile(path_, 1 << 20); }
    std::string path_;
};

TEST_F(JsonlFileTest, AppendsWholeLines) {
    for (uint64_t seq : {1, 2}) {
        auto exporter = MakeExporter("jsonl", {{"path", path_}});
        ASSERT_TRUE(exporter.ok()) << exporter.status();
        EXPECT_TRUE((*exporter)->Export(Make(seq)).ok());
        EXPECT_TRUE((*exporter)->Close().ok());
        EXPECT_EQ((*exporter)->counters().delivered, 1u);
        EXPECT_FALSE((*exporter)->Export(Make(seq)).ok());
    }
    EXPECT_EQ(Content(), "{\"kernel_seq\":\"1\"}\n{\"kernel_seq\":\"2\"}\n");
}

TEST_F(JsonlFileTest, AHalfLineOfAnEarlierWriterIsEnded) {
    Fd fd(open(path_.c_str(), O_WRONLY));
    ASSERT_TRUE(WriteAll(fd.get(), "{\"half").ok());
    auto exporter = MakeExporter("jsonl", {{"path", path_}});
    ASSERT_TRUE(exporter.ok());
    EXPECT_TRUE((*exporter)->Export(Make(1)).ok());
    EXPECT_TRUE((*exporter)->Close().ok());
    EXPECT_EQ(Content(), "{\"half\n{\"kernel_seq\":\"1\"}\n");
}

// A limit on the file's size cuts a write in the middle, as a full disk does.
TEST_F(JsonlFileTest, GoesOnAfterAPartialWrite) {
    signal(SIGXFSZ, SIG_IGN);
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    auto exporter = MakeExporter("jsonl", {{"path", path_}});
    ASSERT_TRUE(exporter.ok());
    for (uint64_t seq : {1, 2, 3}) EXPECT_TRUE((*exporter)->Export(Make(seq)).ok());
    rlimit low = before;
    low.rlim_cur = 30;  // one line has 19 bytes
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
    const Status status = (*exporter)->Flush();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_TRUE((*exporter)->Export(Make(4)).ok());
    EXPECT_TRUE((*exporter)->Close().ok());
    const ExporterCounters counters = (*exporter)->counters();
    EXPECT_EQ(counters.delivered, 2u);
    EXPECT_EQ(counters.dropped.at("file too large"), 2u);
    EXPECT_EQ(Content(), "{\"kernel_seq\":\"1\"}\n{\"kernel_se\n{\"kernel_seq\":\"4\"}\n");
}

TEST(Jsonl, AFullDiskIsCountedAndSurvived) {
    Fd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(full.ok());
    auto exporter = MakeJsonlFd(std::move(full), "full", {.buffer_bytes = 0});
    for (uint64_t seq = 0; seq < 100; ++seq) {
        const Status status = exporter->Export(Make(seq));
        EXPECT_TRUE(absl::IsUnavailable(status)) << status;
        EXPECT_NE(status.message().find("ENOSPC"), std::string::npos) << status;
    }
    EXPECT_EQ(exporter->counters().dropped.at("disk full"), 100u);
    EXPECT_EQ(exporter->counters().delivered, 0u);
}

TEST(Jsonl, AClosedPipeIsAnErrorAndNoDeath) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    auto exporter = MakeJsonlFd(Fd(ends[1]), "pipe", {.buffer_bytes = 0});
    EXPECT_TRUE(exporter->Export(Make(1)).ok());
    close(ends[0]);
    for (int i = 0; i < 2; ++i) {
        EXPECT_TRUE(absl::IsFailedPrecondition(exporter->Export(Make(2))));
    }
    EXPECT_EQ(exporter->counters().dropped.at("closed pipe"), 2u);
    sigset_t pending;
    sigpending(&pending);
    EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

TEST(Jsonl, ASlowReaderGetsAll) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    Fd read_end(ends[0]);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    size_t lines = 0;
    std::thread reader([&] {
        const auto text = ReadAll(read_end.get(), 64 << 20);
        if (text.ok()) lines = static_cast<size_t>(std::count(text->begin(), text->end(), '\n'));
    });
    auto exporter = MakeJsonlFd(Fd(ends[1]), "pipe", {.buffer_bytes = 200'000});
    for (uint64_t seq = 1; seq <= 20'000; ++seq) EXPECT_TRUE(exporter->Export(Make(seq)).ok());
    EXPECT_TRUE(exporter->Close().ok());
    reader.join();
    EXPECT_EQ(lines, 20'000u);
}

TEST(Registry, ErrorsSayWhatToDo) {
    EXPECT_NE(MakeExporter("kafak", {}).status().message().find("jsonl"), std::string::npos);
    EXPECT_TRUE(absl::IsInvalidArgument(MakeExporter("jsonl", {}).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(MakeExporter("jsonl", {{"paht", "x"}}).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(
        MakeExporter("jsonl", {{"path", "-"}, {"buffer_bytes", "-1"}}).status()));
    EXPECT_FALSE(MakeExporter("jsonl", {{"path", "/nonexistent/x"}}).ok());
    EXPECT_TRUE(MakeExporter("jsonl", {{"path", "-"}}).ok());
}

// Twenty waits of five seconds each would hold up the run that writes them.
TEST(JsonlPipe, AReaderThatStandsStillIsWaitedForOnce) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    const Fd reader(ends[0]);
    auto exporter = MakeJsonlFd(Fd(ends[1]), "pipe", {.buffer_bytes = 0});
    uint64_t seq = 1;
    while (exporter->Export(Make(seq)).ok()) ++seq;
    const uint64_t start = BootNow();
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(absl::IsUnavailable(exporter->Export(Make(++seq))));
    EXPECT_LT(BootNow() - start, 20'000'000'000u);
    EXPECT_EQ(exporter->counters().dropped.at("reader stuck"), 21u);
    char taken[1 << 16];
    while (read(reader.get(), taken, sizeof(taken)) > 0) continue;
    EXPECT_TRUE(exporter->Export(Make(++seq)).ok());
}

}  // namespace
}  // namespace stockade::exporters
