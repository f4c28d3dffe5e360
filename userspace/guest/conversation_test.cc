#include "userspace/guest/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"

namespace stockade::guest {
namespace {

using testing::HasSubstr;

class Kept : public GuestSink {
  public:
    Status Stdout(absl::string_view bytes) override { return Add("stdout:", bytes); }
    Status Stderr(absl::string_view bytes) override { return Add("stderr:", bytes); }
    Status Records(absl::string_view bytes) override { return Add("records:", bytes); }
    Status OutEntry(const Entry& entry) override {
        return Add(entry.directory() ? "dir:" : "file:", entry.path());
    }
    Status OutBytes(absl::string_view bytes) override { return Add("bytes:", bytes); }
    Status OutDone() override { return Add("done", ""); }
    Status OutSkipped(const Skipped& skipped) override { return Add("skipped:", skipped.path()); }
    std::string all;

  private:
    Status Add(absl::string_view what, absl::string_view bytes) {
        absl::StrAppend(&all, what, bytes, "\n");
        return absl::OkStatus();
    }
};

// A guest that counts as it speaks, and the host's half that hears it.
class ConversationTest : public testing::Test {
  protected:
    Status Say(Port port, Kind kind, absl::string_view body = "") {
        ++frames_[port];
        bytes_[port] += body.size();
        return talk_.Take(port, EncodeFrame(kind, body));
    }
    template <typename Message>
    Status Tell(Port port, Kind kind, const Message& message) {
        return Say(port, kind, message.SerializeAsString());
    }
    Status SayHello(Port port) {
        Hello hello;
        hello.set_port(static_cast<uint32_t>(port));
        hello.set_kernel("6.12");
        return Tell(port, Kind::kHello, hello);
    }
    Status SayEnd(Port port, int64_t more_frames = 0, int64_t more_bytes = 0) {
        End end;
        end.set_frames(frames_[port] + static_cast<uint64_t>(more_frames));
        end.set_body_bytes(bytes_[port] + static_cast<uint64_t>(more_bytes));
        return talk_.Take(port, EncodeFrame(Kind::kEnd, end.SerializeAsString()));
    }
    Status SayExited(uint32_t status, uint32_t signal = 0) {
        Exited exited;
        exited.set_status(status);
        exited.set_signal(signal);
        return Tell(Port::kControl, Kind::kExited, exited);
    }
    Status SayEntry(const std::string& path, uint64_t size, bool directory = false) {
        Entry entry;
        entry.set_path(path);
        entry.set_size_bytes(size);
        entry.set_directory(directory);
        return Tell(Port::kOut, Kind::kEntry, entry);
    }
    void Boot() {
        for (Port port : kAll) ASSERT_TRUE(SayHello(port).ok());
        ASSERT_EQ(talk_.stage(), Stage::kReady);
        talk_.RunSent();
    }
    void Start() {
        Boot();
        ASSERT_TRUE(Say(Port::kControl, Kind::kStarted).ok());
        ASSERT_EQ(talk_.stage(), Stage::kRunning);
    }
    static void ExpectRefused(const Status& status, const std::string& words) {
        EXPECT_FALSE(status.ok());
        EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    }

    static constexpr Port kAll[] = {Port::kControl, Port::kStdio, Port::kEvents, Port::kOut};
    Kept kept_;
    Conversation talk_{kept_};
    std::map<Port, uint64_t> frames_, bytes_;
};

TEST_F(ConversationTest, AWholeRun) {
    EXPECT_EQ(talk_.stage(), Stage::kBooting);
    EXPECT_EQ(talk_.PortsWithoutHello(), "control, stdio, events, out");
    Boot();
    EXPECT_EQ(talk_.stage(), Stage::kStarting);
    // Another port's bytes may overtake what control says.
    ASSERT_TRUE(Say(Port::kStdio, Kind::kStdout, "early").ok());
    ASSERT_TRUE(Say(Port::kControl, Kind::kStarted).ok());
    ASSERT_TRUE(Say(Port::kStdio, Kind::kStderr, "oops").ok());
    ASSERT_TRUE(Say(Port::kEvents, Kind::kRecords, "event").ok());
    ASSERT_TRUE(SayEntry("d", 0, true).ok());
    ASSERT_TRUE(SayEntry("d/empty", 0).ok());
    ASSERT_TRUE(SayEntry("d/f", 5).ok());
    ASSERT_TRUE(Say(Port::kOut, Kind::kEntryData, "abc").ok());
    ASSERT_TRUE(Say(Port::kOut, Kind::kEntryData, "de").ok());
    Skipped skipped;
    skipped.set_path("link");
    ASSERT_TRUE(Tell(Port::kOut, Kind::kSkipped, skipped).ok());
    ASSERT_TRUE(SayExited(3).ok());
    EXPECT_EQ(talk_.stage(), Stage::kEnding);
    for (Port port : kAll) ASSERT_TRUE(SayEnd(port).ok());
    EXPECT_EQ(talk_.stage(), Stage::kComplete);
    EXPECT_EQ(talk_.exited()->status(), 3u);
    EXPECT_EQ(talk_.kernel(), "6.12");
    EXPECT_EQ(kept_.all,
              "stdout:early\nstderr:oops\nrecords:event\ndir:d\ndone\nfile:d/empty\ndone\nfile:d/"
              "f\nbytes:abc\nbytes:de\ndone\n"
              "skipped:link\n");
}

TEST_F(ConversationTest, ACommandThatDoesNotStart) {
    Boot();
    Failed failed;
    failed.set_step("execve");
    failed.set_error(2);
    ASSERT_TRUE(Tell(Port::kControl, Kind::kFailed, failed).ok());
    for (Port port : kAll) ASSERT_TRUE(SayEnd(port).ok());
    EXPECT_EQ(talk_.stage(), Stage::kComplete);
    EXPECT_FALSE(talk_.exited().has_value());
    EXPECT_EQ(talk_.failed()->step(), "execve");
}

TEST_F(ConversationTest, APortThatDoesNotSayHello) {
    ExpectRefused(Say(Port::kStdio, Kind::kStdout, "x"), "port stdio: it does not begin with a hello");
    // Nothing is taken from a guest that has lied once, whatever the port.
    EXPECT_FALSE(SayHello(Port::kControl).ok());
    EXPECT_EQ(talk_.stage(), Stage::kBooting);
}

TEST_F(ConversationTest, APortThatSaysHelloAsAnother) {
    Hello hello;
    hello.set_port(static_cast<uint32_t>(Port::kOut));
    ExpectRefused(Tell(Port::kEvents, Kind::kHello, hello), "says hello as port 3");
}

TEST_F(ConversationTest, ASecondHello) {
    ASSERT_TRUE(SayHello(Port::kControl).ok());
    ExpectRefused(SayHello(Port::kControl), "out of its place");
}

TEST_F(ConversationTest, WordsBeforeTheOrderToRun) {
    for (Port port : kAll) ASSERT_TRUE(SayHello(port).ok());
    ExpectRefused(Say(Port::kControl, Kind::kStarted), "out of its place");
}

TEST_F(ConversationTest, AnEndBeforeTheOrderToRun) {
    ASSERT_TRUE(SayHello(Port::kOut).ok());
    ExpectRefused(SayEnd(Port::kOut), "out of its place");
}

TEST_F(ConversationTest, CountsThatLie) {
    struct Row {
        int64_t frames, bytes;
    };
    for (const Row& row : {Row{1, 0}, Row{-1, 0}, Row{0, 1}, Row{0, -1}}) {
        Conversation talk(kept_);
        for (Port port : kAll) {
            Hello hello;
            hello.set_port(static_cast<uint32_t>(port));
            ASSERT_TRUE(talk.Take(port, EncodeFrame(Kind::kHello, hello.SerializeAsString())).ok());
        }
        talk.RunSent();
        ASSERT_TRUE(talk.Take(Port::kStdio, EncodeFrame(Kind::kStdout, "four")).ok());
        End end;
        Hello hello;
        hello.set_port(static_cast<uint32_t>(Port::kStdio));
        end.set_frames(static_cast<uint64_t>(2 + row.frames));
        end.set_body_bytes(static_cast<uint64_t>(4 + static_cast<int64_t>(hello.ByteSizeLong()) + row.bytes));
        ExpectRefused(talk.Take(Port::kStdio, EncodeFrame(Kind::kEnd, end.SerializeAsString())),
                      "its end tells of");
    }
}

TEST_F(ConversationTest, AFrameAfterTheEnd) {
    Start();
    ASSERT_TRUE(SayEnd(Port::kStdio).ok());
    ExpectRefused(Say(Port::kStdio, Kind::kStdout, "x"), "after the last one");
}

TEST_F(ConversationTest, AnEndWithoutAWordOnTheCommand) {
    Start();
    ExpectRefused(SayEnd(Port::kControl), "without a word on the command");
}

TEST_F(ConversationTest, StagesOutOfOrder) {
    Boot();
    ExpectRefused(SayExited(0), "out of its place");
}

TEST_F(ConversationTest, TwoEndsOfOneCommand) {
    Start();
    ASSERT_TRUE(SayExited(0).ok());
    ExpectRefused(SayExited(1), "out of its place");
}

TEST_F(ConversationTest, FailedAfterStarted) {
    Start();
    ExpectRefused(Tell(Port::kControl, Kind::kFailed, Failed()), "out of its place");
}

TEST_F(ConversationTest, AStatusThatNoProcessHas) {
    for (auto [status, signal] : {std::pair{256u, 0u}, std::pair{0u, 65u}, std::pair{1u, 9u}}) {
        Conversation talk(kept_);
        for (Port port : kAll) {
            Hello hello;
            hello.set_port(static_cast<uint32_t>(port));
            ASSERT_TRUE(talk.Take(port, EncodeFrame(Kind::kHello, hello.SerializeAsString())).ok());
        }
        talk.RunSent();
        ASSERT_TRUE(talk.Take(Port::kControl, EncodeFrame(Kind::kStarted, "")).ok());
        Exited exited;
        exited.set_status(status);
        exited.set_signal(signal);
        ExpectRefused(talk.Take(Port::kControl, EncodeFrame(Kind::kExited, exited.SerializeAsString())),
                      "no process has");
    }
}

TEST_F(ConversationTest, KindsOfOtherPortsAndOfTheHost) {
    const std::pair<Port, Kind> rows[] = {{Port::kControl, Kind::kStdout}, {Port::kStdio, Kind::kRecords},
                                          {Port::kEvents, Kind::kStarted}, {Port::kOut, Kind::kStderr},
                                          {Port::kControl, Kind::kRun},    {Port::kStdio, Kind::kStdin},
                                          {Port::kControl, Kind::kAck}};
    for (auto [port, kind] : rows) {
        Conversation talk(kept_);
        for (Port each : kAll) {
            Hello hello;
            hello.set_port(static_cast<uint32_t>(each));
            ASSERT_TRUE(talk.Take(each, EncodeFrame(Kind::kHello, hello.SerializeAsString())).ok());
        }
        talk.RunSent();
        ExpectRefused(talk.Take(port, EncodeFrame(kind, "")), "out of its place");
    }
}

TEST_F(ConversationTest, AFileWithMoreBytesThanPromised) {
    Start();
    ASSERT_TRUE(SayEntry("f", 3).ok());
    ExpectRefused(Say(Port::kOut, Kind::kEntryData, "four"), "more bytes than");
    EXPECT_EQ(kept_.all, "file:f\n");
}

TEST_F(ConversationTest, BytesOfNoFile) {
    Start();
    ExpectRefused(Say(Port::kOut, Kind::kEntryData, "x"), "more bytes than");
}

TEST_F(ConversationTest, AFileThatIsNotWhole) {
    Start();
    ASSERT_TRUE(SayEntry("f", 3).ok());
    ExpectRefused(SayEnd(Port::kOut), "3 bytes of a file still to come");
}

TEST_F(ConversationTest, AFileWithinAFile) {
    Start();
    ASSERT_TRUE(SayEntry("f", 3).ok());
    ExpectRefused(SayEntry("g", 3), "before the last one is whole");
}

TEST_F(ConversationTest, EmptyDataDoesNotGoOnForever) {
    Start();
    ASSERT_TRUE(SayEntry("f", 3).ok());
    ExpectRefused(Say(Port::kOut, Kind::kEntryData, ""), "more bytes than");
}

TEST_F(ConversationTest, ADirectoryWithBytes) {
    Start();
    ExpectRefused(SayEntry("d", 3, true), "a directory with bytes");
}

TEST_F(ConversationTest, AMessageThatIsNone) {
    Start();
    ExpectRefused(Say(Port::kOut, Kind::kEntry, "\xff\xff\xff\xff"), "holds no");
}

TEST_F(ConversationTest, TheSinkHasTheLastWord) {
    class Refusing : public Kept {
      public:
        Status OutEntry(const Entry&) override { return absl::ResourceExhaustedError("enough"); }
    } refusing;
    Conversation talk(refusing);
    for (Port port : kAll) {
        Hello hello;
        hello.set_port(static_cast<uint32_t>(port));
        ASSERT_TRUE(talk.Take(port, EncodeFrame(Kind::kHello, hello.SerializeAsString())).ok());
    }
    talk.RunSent();
    ExpectRefused(talk.Take(Port::kOut, EncodeFrame(Kind::kEntry, "")), "port out: enough");
}

}  // namespace
}  // namespace stockade::guest
