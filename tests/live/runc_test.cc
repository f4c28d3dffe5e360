// Containers of runc in bound cgroups: what was there at binding and what enters later, with the container's root as "/".
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "bpf/wire/slot.h"
#include "tests/live/sandbox.h"

namespace stockade::live {
namespace {

constexpr char kRunc[] = "/usr/sbin/runc";

std::string ReadFile(const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string Quoted(const std::vector<std::string>& words) {
    return absl::StrJoin(words, ", ", [](std::string* out, const std::string& word) { absl::StrAppend(out, "\"", word, "\""); });
}

// The cgroup as runc names it: below the mount of the unified hierarchy.
std::string BelowMount(const std::string& cgroup) {
    for (const char* mount : {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"}) {
        std::ifstream controllers(absl::StrCat(mount, "/cgroup.controllers"));
        if (controllers.good() && absl::StartsWith(cgroup, mount)) return cgroup.substr(strlen(mount));
    }
    ADD_FAILURE() << cgroup << " lies in no unified hierarchy";
    return {};
}

// Made by `runc create`, bound while its init waits for `runc start`.
class Container {
  public:
    Container(const Policy& policy, const std::vector<std::string>& args) {
        static int number = 0;
        id_ = absl::StrCat("sk-live-", getpid(), "-", ++number);
        dir_ = absl::StrCat("/tmp/", id_);
        cgroup_ = absl::StrCat(ParentCgroup(), "/", id_);
        const int64_t index = Publish(policy);
        if (index < 0) return;
        policy_index_ = static_cast<uint32_t>(index);
        WriteBundle(args);
        int input[2];
        EXPECT_EQ(pipe2(input, O_CLOEXEC), 0);
        input_ = Fd(input[1]);
        Fd read_end(input[0]);
        created_ = Runc({"create", "--bundle", dir_, "--pid-file", dir_ + "/pid", id_}, dir_ + "/out", read_end.get()) == 0;
        EXPECT_TRUE(created_) << ReadFile(dir_ + "/out");
        if (created_) Bind();
    }
    ~Container() {
        if (created_) {
            EXPECT_EQ(Runc({"delete", "--force", id_}, dir_ + "/deleted"), 0) << ReadFile(dir_ + "/deleted");
        }
        if (ref_) {
            EXPECT_TRUE(TheSensor()->FreeSlot(*ref_).ok());
        }
        EXPECT_TRUE(TheSensor()->RetirePolicy(policy_index_).ok());
        std::filesystem::remove_all(dir_);
    }

    bool ok() const { return ref_.has_value(); }
    int Start() { return Runc({"start", id_}, dir_ + "/started"); }
    // Exit status of `runc exec`; `output` gets what it printed.
    int Exec(const std::vector<std::string>& args, std::string* output) {
        std::vector<std::string> words = {"exec", id_};
        words.insert(words.end(), args.begin(), args.end());
        const int status = Runc(words, dir_ + "/exec");
        *output = ReadFile(dir_ + "/exec");
        return status;
    }
    bool WaitOutput(const std::string& text) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(PatienceMs());
        while (!absl::StrContains(output(), text)) {
            if (Ended(50) && !absl::StrContains(output(), text)) return false;
            if (std::chrono::steady_clock::now() > deadline) return false;
        }
        return true;
    }
    bool WaitEnd() { return Ended(PatienceMs()); }
    std::string output() const { return ReadFile(dir_ + "/out"); }
    std::vector<Record> Records() {
        for (Record& record : DrainRecords()) {
            if (record.head.slot == ref_->slot && record.head.generation == ref_->generation) records_.push_back(std::move(record));
        }
        return records_;
    }
    int labelled() const { return labelled_; }

  private:
    void WriteBundle(const std::vector<std::string>& args) {
        namespace fs = std::filesystem;
        for (const char* sub : {"/rootfs/etc", "/rootfs/proc"}) fs::create_directories(dir_ + sub);
        fs::copy_file(TriggersPath(), dir_ + "/rootfs/triggers");
        for (const char* name : {"/rootfs/etc/allowed", "/rootfs/etc/other"}) std::ofstream(dir_ + name) << "bytes";
        std::ofstream(dir_ + "/config.json")
            << "{\"ociVersion\": \"1.0.2\", \"hostname\": \"live\", \"root\": {\"path\": \"rootfs\"},\n"
            << "\"process\": {\"terminal\": false, \"user\": {\"uid\": 0, \"gid\": 0}, \"cwd\": \"/\", \"noNewPrivileges\": true, \"args\": ["
            << Quoted(args) << "]},\n\"mounts\": [{\"destination\": \"/proc\", \"type\": \"proc\", \"source\": \"proc\"}],\n"
            << "\"linux\": {\"cgroupsPath\": \"" << BelowMount(cgroup_) << "\", \"namespaces\": [{\"type\": \"pid\"}, {\"type\": \"mount\"}, "
            << "{\"type\": \"ipc\"}, {\"type\": \"uts\"}]}}\n";
    }
    void Bind() {
        int pid = 0;
        ASSERT_TRUE(absl::SimpleAtoi(ReadFile(dir_ + "/pid"), &pid));
        pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
        auto dir = Fd::Open(cgroup_, O_RDONLY | O_DIRECTORY);
        ASSERT_TRUE(dir.ok()) << dir.status();
        auto ref = TheSensor()->BindSlot({.cgroup_fd = dir->get(), .root_pidfd = pidfd_.get(), .policy_index = policy_index_});
        ASSERT_TRUE(ref.ok()) << ref.status();
        ref_ = *ref;
        auto labelled = TheSensor()->LabelPresent(*ref);
        ASSERT_TRUE(labelled.ok()) << labelled.status();
        labelled_ = static_cast<int>(*labelled);
    }
    // Exit status, 128 + signal, with both outputs in `out`.
    int Runc(const std::vector<std::string>& words, const std::string& out, int input = -1) {
        std::vector<std::string> all = {kRunc, "--root", dir_ + "/state"};
        all.insert(all.end(), words.begin(), words.end());
        std::vector<char*> argv;
        for (std::string& word : all) argv.push_back(word.data());
        argv.push_back(nullptr);
        const pid_t pid = fork();
        if (pid == 0) {
            const int target = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
            const int source = input >= 0 ? input : open("/dev/null", O_RDONLY);
            if (dup2(source, 0) < 0 || dup2(target, 1) < 0 || dup2(target, 2) < 0) _exit(97);
            execv(argv[0], argv.data());
            _exit(98);
        }
        int status = 0;
        EXPECT_EQ(waitpid(pid, &status, 0), pid);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    bool Ended(int timeout_ms) {
        pollfd ended = {pidfd_.get(), POLLIN, 0};
        return poll(&ended, 1, timeout_ms) == 1;
    }

    std::string id_, dir_, cgroup_;
    uint32_t policy_index_ = 0;
    bool created_ = false;
    int labelled_ = 0;
    Fd input_, pidfd_;
    std::optional<kernel::SlotRef> ref_;
    std::vector<Record> records_;
};

const Record* Find(const std::vector<Record>& records, uint32_t code) {
    for (const Record& record : records) {
        if (record.head.code == code) return &record;
    }
    return nullptr;
}

class RuncTest : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_NE(TheSensor(), nullptr);
        if (access(kRunc, X_OK) != 0) GTEST_SKIP() << "runc is not installed";
    }
};

TEST_F(RuncTest, StartIsJudgedByThePolicyInTheContainersRoot) {
    Container container({.exec = {"/triggers"}, .read = {"/etc/allowed"}}, {"/triggers", "open_read", "/etc/allowed"});
    ASSERT_TRUE(container.ok());
    EXPECT_GT(container.labelled(), 0) << "runc's init was there at binding";
    EXPECT_EQ(container.Start(), 0);
    EXPECT_TRUE(container.WaitOutput("done")) << container.output();
    const auto records = container.Records();
    EXPECT_EQ(Find(records, SK_CODE_ENTERED), nullptr);
    for (const Record& record : records) EXPECT_EQ(record.head.code, static_cast<uint32_t>(SK_CODE_OK)) << "kind " << record.head.kind;
}

TEST_F(RuncTest, StartOfAnotherProgramIsRefused) {
    Container container({.read = {"/etc/allowed"}}, {"/triggers", "open_read", "/etc/allowed"});
    ASSERT_TRUE(container.ok());
    (void)container.Start();  // runc may see its init die
    EXPECT_TRUE(container.WaitEnd());
    EXPECT_FALSE(absl::StrContains(container.output(), "done")) << container.output();
    EXPECT_NE(Find(container.Records(), SK_CODE_EXEC_NOT_ALLOWED), nullptr);
}

TEST_F(RuncTest, ExecSessionIsRefusedByDefault) {
    Container container({.exec = {"/triggers"}}, {"/triggers", "fork", "0"});
    ASSERT_TRUE(container.ok());
    EXPECT_EQ(container.Start(), 0);
    ASSERT_TRUE(container.WaitOutput("done")) << container.output();
    std::string output;
    EXPECT_NE(container.Exec({"/triggers", "say", "it ran"}, &output), 0);
    EXPECT_FALSE(absl::StrContains(output, "it ran")) << output;
    const auto records = container.Records();
    const Record* entered = Find(records, SK_CODE_ENTERED);
    ASSERT_NE(entered, nullptr);
    EXPECT_TRUE(entered->head.flags & SK_RECORD_ENTERED);
}

TEST_F(RuncTest, ExecSessionUnderEnforceIsReportedAndJudged) {
    Container container({.exec = {"/triggers"}, .read = {"/etc/allowed"}, .entered = "enforce"}, {"/triggers", "fork", "0"});
    ASSERT_TRUE(container.ok());
    EXPECT_EQ(container.Start(), 0);
    ASSERT_TRUE(container.WaitOutput("done")) << container.output();
    std::string output;
    EXPECT_EQ(container.Exec({"/triggers", "open_read", "/etc/allowed"}, &output), 0) << output;
    EXPECT_TRUE(absl::StrContains(output, "done")) << output;
    bool session = false;
    for (const Record& record : container.Records())
        session |= record.head.kind == SK_KIND_EXEC && (record.head.flags & SK_RECORD_ENTERED) && record.head.code == SK_CODE_OK;
    EXPECT_TRUE(session) << "an exec session is reported";
    EXPECT_NE(container.Exec({"/triggers", "open_read", "/etc/other"}, &output), 0);
    EXPECT_FALSE(absl::StrContains(output, "done")) << output;
    EXPECT_NE(Find(container.Records(), SK_CODE_READ_NOT_ALLOWED), nullptr);
}

}  // namespace
}  // namespace stockade::live
