// Approvers of all kinds, real ones: files, sockets, programs; and those that hang, lie, or answer something else.
#include "userspace/contract/approval.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"
#include "userspace/contract/parse.h"
#include "userspace/contract/refusal.h"

namespace stockade::contract {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kLong = 20'000'000'000, kShort = 200'000'000;

class Approving : public ::testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_approval_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        dir_ = name;
        contract_ = *ParseOne("c", "apiVersion: stockade.dev/v1\nkind: ToolContract\nmetadata: {name: t}\nspec: {class: sandbox, policy: p, timeout: 1s, command: {allow: [/bin/true]}}\n");
        request_ = {.id = "call-1", .contract = &contract_, .call = {.argv = {"/bin/true", "\xff"}, .env = {}, .cwd = "/", .inputs = {}, .contract_sha256 = "c", .policy_sha256 = "p"}, .session = "s", .trace = "", .cause = "", .timeout_ns = kLong};
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }
    std::string Answer(const std::string& decision = "allow", const std::string& id = "call-1", const std::string& digest = "") const {
        return absl::StrCat(R"({"id":")", id, R"(","digest":")", digest.empty() ? DigestsOf(request_.call).all : digest, R"(","decision":")", decision, R"(","by":"ann","reason":"fine"})");
    }
    std::string Code(const std::string& channel, uint64_t timeout_ns = kLong) const {
        const StatusOr<Approval> approval = Ask(*ApprovalChannel::Parse(channel), request_, timeout_ns);
        if (approval.ok()) return absl::StrCat("allowed by ", approval->by, " uid ", approval->uid);
        message_ = std::string(approval.status().message());
        return RefusalCode(approval.status());
    }
    std::string AllowedByUs() const { return absl::StrCat("allowed by ann uid ", geteuid()); }
    void Put(const std::string& name, const std::string& text, mode_t mode = 0600) const {
        const Fd file(open((dir_ + "/" + name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        ASSERT_TRUE(WriteAll(file.get(), text).ok());
        ASSERT_EQ(fchmod(file.get(), mode), 0);
    }

    std::string dir_;
    ToolContract contract_;
    ApprovalRequest request_;
    mutable std::string message_;
};

TEST_F(Approving, AnAnswerMustRepeatWhatItIsFor) {
    EXPECT_TRUE(ReadAnswer(Answer(), request_).ok());
    EXPECT_EQ(RefusalCode(ReadAnswer(Answer("deny"), request_).status()), "approval.denied");
    EXPECT_THAT(ReadAnswer(Answer("deny"), request_).status().message(), HasSubstr("denied by ann: fine"));
    for (const std::string& other : {Answer("allow", "call-2"), Answer("allow", "call-1", std::string(64, '0')), Answer("yes"), Answer("ALLOW"), std::string(""), std::string("allow"), std::string("true"),
                                     std::string("[]"), std::string(R"({"decision":"allow"})"), Answer() + Answer(), absl::StrCat(R"({"decision":"allow",)", Answer("deny").substr(1)),
                                     absl::StrCat(R"({"extra":"x",)", Answer().substr(1)), std::string(R"({"id":1,"digest":2,"decision":"allow"})"), std::string(1 << 20, ' ')})
        EXPECT_EQ(RefusalCode(ReadAnswer(other, request_).status()), "approval.failed") << other.substr(0, 200);
    // The same answer to a call with one argument more.
    const std::string answer = Answer();
    request_.call.argv.push_back("--force");
    EXPECT_THAT(ReadAnswer(answer, request_).status().message(), HasSubstr("digest"));
}

TEST_F(Approving, TheRequestSaysAllOfIt) {
    const std::string json = request_.ToJson();
    EXPECT_THAT(json, HasSubstr(DigestsOf(request_.call).all));
    EXPECT_THAT(json, HasSubstr("\"id\":\"call-1\""));
    EXPECT_THAT(json, HasSubstr("/bin/true"));
    EXPECT_EQ(json.find('\n'), std::string::npos);
}

TEST_F(Approving, ByAProgram) {
    EXPECT_EQ(Code("exec:cat >/dev/null; echo '" + Answer() + "'"), AllowedByUs());
    EXPECT_EQ(Code("exec:echo '" + Answer() + "'"), AllowedByUs());  // reads nothing
    EXPECT_EQ(Code("exec:echo '" + Answer("deny") + "'"), "approval.denied");
    EXPECT_EQ(Code("exec:true"), "approval.failed");
    EXPECT_EQ(Code("exec:exit 1"), "approval.failed");
    EXPECT_EQ(Code("exec:" + dir_ + "/absent"), "approval.failed");
    EXPECT_EQ(Code("exec:yes | head -c 1000000"), "approval.failed");
    // What it reads is the request: its digest comes back from there.
    EXPECT_EQ(Code(R"x(exec:sed 's/.*"digest":"\([0-9a-f]*\)".*/{"id":"call-1","digest":"\1","decision":"allow","by":"ann"}/')x"), AllowedByUs());
}

TEST_F(Approving, AProgramThatHangsIsEndedWithAllOfIt) {
    const uint64_t began = BootNow();
    EXPECT_EQ(Code("exec:echo $$ >" + dir_ + "/pid; (sleep 1000 & echo $! >" + dir_ + "/child; wait)", 500'000'000), "approval.timeout");
    EXPECT_LT(BootNow() - began, 10'000'000'000u);
    for (const char* name : {"pid", "child"}) {
        const auto text = ReadFile(dir_ + "/" + name, 100);
        ASSERT_TRUE(text.ok()) << name;
        const pid_t pid = std::stoi(*text);
        const uint64_t end = BootNow() + 10'000'000'000;
        // One that nobody has reaped yet is gone as well.
        const auto gone = [pid] {
            const auto stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"), 4096);
            return !stat.ok() || stat->find(") Z ") != std::string::npos;
        };
        while (!gone() && BootNow() < end) usleep(1000);  // between two looks, not instead of them
        EXPECT_TRUE(gone()) << name;
    }
}

TEST_F(Approving, ByAFile) {
    // An answer of before the question is none.
    Put("answer", Answer());
    std::thread reviewer([this] {
        while (!std::filesystem::exists(dir_ + "/answer.request")) usleep(1000);
        const auto asked = ReadFile(dir_ + "/answer.request", 1 << 20);
        EXPECT_EQ(*asked, request_.ToJson() + "\n");
        Put("new", Answer());
        rename((dir_ + "/new").c_str(), (dir_ + "/answer").c_str());
    });
    EXPECT_EQ(Code("file:" + dir_ + "/answer"), AllowedByUs()) << message_;
    reviewer.join();
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/answer.request"));
}

TEST_F(Approving, NoFileIsADeny) {
    Put("answer", Answer());
    EXPECT_EQ(Code("file:" + dir_ + "/answer", kShort), "approval.timeout");
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/answer.request"));
    EXPECT_EQ(Code("file:" + dir_ + "/absent/answer", kShort), "approval.failed");
}

TEST_F(Approving, AFileThatOthersCouldHaveWrittenIsNoAnswer) {
    const auto put_later = [this](auto put) {
        std::thread reviewer([this, put] {
            while (!std::filesystem::exists(dir_ + "/answer.request")) usleep(1000);
            put();
            rename((dir_ + "/new").c_str(), (dir_ + "/answer").c_str());
        });
        const std::string code = Code("file:" + dir_ + "/answer");
        reviewer.join();
        std::filesystem::remove(dir_ + "/answer");
        return code;
    };
    EXPECT_EQ(put_later([this] { Put("new", Answer(), 0666); }), "approval.failed");
    EXPECT_THAT(message_, HasSubstr("written by others"));
    EXPECT_EQ(put_later([this] {
                  Put("target", Answer());
                  ASSERT_EQ(symlink("target", (dir_ + "/new").c_str()), 0);
              }),
              "approval.failed");
    EXPECT_EQ(put_later([this] { ASSERT_EQ(mkfifo((dir_ + "/new").c_str(), 0600), 0); }), "approval.failed");
    EXPECT_THAT(message_, HasSubstr("no regular file"));
    EXPECT_EQ(put_later([this] { Put("new", Answer()); }), AllowedByUs());
}

class Listener {
  public:
    explicit Listener(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
        EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        EXPECT_EQ(listen(fd_.get(), 4), 0);
    }
    Fd Accept() const { return Fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }

  private:
    Fd fd_;
};

TEST_F(Approving, ByASocket) {
    const Listener listener(dir_ + "/s");
    std::thread reviewer([&] {
        const Fd peer = listener.Accept();
        EXPECT_EQ(*ReadAll(peer.get(), 1 << 20), request_.ToJson() + "\n");
        EXPECT_TRUE(WriteAll(peer.get(), Answer()).ok());
    });
    EXPECT_EQ(Code("unix:" + dir_ + "/s"), AllowedByUs()) << message_;
    reviewer.join();
}

TEST_F(Approving, ASocketThatHangsOrGoesIsADeny) {
    const Listener listener(dir_ + "/s");
    EXPECT_EQ(Code("unix:" + dir_ + "/s", kShort), "approval.timeout");  // nobody accepts
    std::thread reviewer([&] {
        (void)listener.Accept();  // the one of before
        const Fd peer = listener.Accept();
    });
    EXPECT_EQ(Code("unix:" + dir_ + "/s"), "approval.failed");  // closes without a word
    reviewer.join();
    std::thread half([&] {
        const Fd peer = listener.Accept();
        EXPECT_TRUE(WriteAll(peer.get(), Answer().substr(0, 40)).ok());
        pollfd gone{.fd = peer.get(), .events = 0, .revents = 0};
        (void)poll(&gone, 1, -1);  // POLLHUP: the other side has gone
    });
    EXPECT_EQ(Code("unix:" + dir_ + "/s", kShort), "approval.timeout");
    half.join();
    EXPECT_EQ(Code("unix:" + dir_ + "/absent"), "approval.failed");
}

}  // namespace
}  // namespace stockade::contract
