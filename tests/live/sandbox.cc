#include "tests/live/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "bpf/wire/file.h"

namespace stockade::live {

bool Result::killed() const { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
int Result::exit_code() const { return status != -1 && WIFEXITED(status) ? WEXITSTATUS(status) : -1; }

std::vector<Record> Result::Violations() const {
    std::vector<Record> found;
    for (const Record& record : records) {
        if (record.head.code != SK_CODE_OK && record.head.kind != SK_KIND_LIFECYCLE) found.push_back(record);
    }
    return found;
}

const Record* Result::Find(uint32_t code) const {
    for (const Record& record : records) {
        if (record.head.code == code) return &record;
    }
    return nullptr;
}

std::string Result::Describe() const {
    std::string text = absl::StrCat("status ", status, timed_out ? " (timed out)" : "", ", output: ", output);
    for (const Record& r : records) {
        absl::StrAppend(&text, "\n  record kind ", r.head.kind, " code ", r.head.code, " verdict ", r.head.verdict, " outcome ", r.head.outcome,
                        " lock ", r.head.lock, " backend ", r.head.backend, " flags ", r.head.flags, " op ", r.op());
    }
    return text;
}

Sandbox::Sandbox(const Policy& policy, const std::vector<std::string>& args, int spare_fd, bool label) {
    kernel::Sensor* sensor = TheSensor();
    int64_t index = sensor ? Publish(policy) : -1;
    if (index < 0) return;
    policy_index_ = static_cast<uint32_t>(index);
    published_ = true;
    static int number = 0;
    cgroup_ = absl::StrCat(ParentCgroup(), "/s", ++number);
    EXPECT_EQ(mkdir(cgroup_.c_str(), 0755), 0) << strerror(errno);
    auto dir = Fd::Open(cgroup_, O_RDONLY | O_DIRECTORY);
    EXPECT_TRUE(dir.ok()) << dir.status();
    if (!dir.ok()) return;
    cgroup_fd_ = *std::move(dir);
    Fork(args, spare_fd);
    auto ref = sensor->BindSlot({.cgroup_fd = cgroup_fd_.get(), .root_pidfd = pidfd_.get(), .policy_index = policy_index_, .closed = policy.closed});
    EXPECT_TRUE(ref.ok()) << ref.status();
    if (!ref.ok()) return;
    ref_ = *ref;
    bound_ = true;
    Status labelled = label ? sensor->Label(ref_, pidfd_.get()) : absl::OkStatus();
    EXPECT_TRUE(labelled.ok()) << labelled;
    ok_ = labelled.ok();
}

void Sandbox::Fork(const std::vector<std::string>& args, int spare_fd) {
    int start[2], out[2], in[2];
    EXPECT_EQ(pipe2(start, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    std::string program = TriggersPath();
    std::vector<char*> argv = {program.data()};
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
        char go;
        close(start[1]);
        dup2(in[0], 0);
        dup2(out[1], 1);
        if (spare_fd >= 0) dup2(spare_fd, 7);
        if (read(start[0], &go, 1) != 1) _exit(99);
        execv(argv[0], argv.data());
        _exit(98);
    }
    close(start[0]);
    close(out[1]);
    close(in[0]);
    start_ = Fd(start[1]);
    output_fd_ = Fd(out[0]);
    input_ = Fd(in[1]);
    auto procs = Fd::Open(cgroup_ + "/cgroup.procs", O_WRONLY);
    EXPECT_TRUE(procs.ok() && WriteAll(procs->get(), absl::StrCat(pid_)).ok());
    pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
}

void Sandbox::Go() { EXPECT_EQ(write(start_.get(), "g", 1), 1); }

bool Sandbox::ReadSome(int timeout_ms) {
    pollfd waiting = {output_fd_.get(), POLLIN, 0};
    if (poll(&waiting, 1, timeout_ms) <= 0) return false;
    char bytes[4096];
    ssize_t n = read(output_fd_.get(), bytes, sizeof(bytes));
    if (n <= 0) {
        output_fd_.Reset();
        return false;
    }
    output_.append(bytes, static_cast<size_t>(n));
    return true;
}

bool Sandbox::WaitOutput(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(PatienceMs());
    while (output_.find(text) == std::string::npos) {
        if (!output_fd_.ok() || std::chrono::steady_clock::now() > deadline) return false;
        ReadSome(100);
    }
    return true;
}

bool Sandbox::WaitMore(size_t bytes) {
    const size_t wanted = output_.size() + bytes;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(PatienceMs());
    while (output_.size() < wanted) {
        if (!output_fd_.ok() || std::chrono::steady_clock::now() > deadline) return false;
        ReadSome(100);
    }
    return true;
}

Result Sandbox::Finish() {
    Result result;
    result.ref = ref_;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(PatienceMs());
    while (output_fd_.ok() && std::chrono::steady_clock::now() < deadline) ReadSome(100);
    result.timed_out = output_fd_.ok();
    if (result.timed_out) {
        auto killer = Fd::Open(cgroup_ + "/cgroup.kill", O_WRONLY);
        EXPECT_TRUE(killer.ok() && WriteAll(killer->get(), "1").ok());
    }
    pollfd ended = {pidfd_.get(), POLLIN, 0};
    if (poll(&ended, 1, PatienceMs()) == 1 && waitpid(pid_, &result.status, 0) == pid_) pid_ = -1;
    result.output = output_;
    for (Record& record : DrainRecords()) {
        if (record.head.slot == ref_.slot && record.head.generation == ref_.generation) result.records.push_back(std::move(record));
    }
    if (bound_) {
        auto state = TheSensor()->ReadState(ref_);
        EXPECT_TRUE(state.ok()) << state.status();
        if (state.ok()) result.state = *state;
    }
    return result;
}

void Sandbox::End() {
    if (pid_ > 0) {
        auto killer = Fd::Open(cgroup_ + "/cgroup.kill", O_WRONLY);
        if (killer.ok()) (void)WriteAll(killer->get(), "1");
        (void)kill(pid_, SIGKILL); // it may have left the cgroup
        (void)waitpid(pid_, nullptr, 0);
    }
    auto events = Fd::Open(cgroup_ + "/cgroup.events", O_RDONLY);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(PatienceMs());
    while (events.ok() && std::chrono::steady_clock::now() < deadline) {
        char text[256] = {};
        if (pread(events->get(), text, sizeof(text) - 1, 0) <= 0 || strstr(text, "populated 0")) break;
        pollfd changed = {events->get(), POLLPRI, 0};
        poll(&changed, 1, 100);
    }
}

Sandbox::~Sandbox() {
    if (!cgroup_.empty()) End();
    if (bound_) {
        Status freed = TheSensor()->FreeSlot(ref_);
        EXPECT_TRUE(freed.ok()) << freed;
    }
    if (published_) {
        EXPECT_TRUE(TheSensor()->RetirePolicy(policy_index_).ok());
    }
    if (!cgroup_.empty()) {
        EXPECT_EQ(rmdir(cgroup_.c_str()), 0) << cgroup_ << ": " << strerror(errno);
    }
}

Result RunSandboxed(const Policy& policy, const std::vector<std::string>& args, int spare_fd) {
    Sandbox sandbox(policy, args, spare_fd);
    if (!sandbox.ok()) return {};
    sandbox.Go();
    return sandbox.Finish();
}

}  // namespace stockade::live
