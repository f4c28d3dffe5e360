#include "tests/bench/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"

namespace stockade::bench {
namespace {

constexpr size_t kMaxOutput = 65536;  // programs under measurement say a line or two

[[noreturn]] void Become(std::vector<char*>& argv, int out, int err) {
    const int null = open("/dev/null", O_RDONLY);
    (void)dup2(null, 0);
    (void)dup2(out, 1);
    (void)dup2(err, 2);
    (void)signal(SIGPIPE, SIG_DFL);
    execvp(argv[0], argv.data());
    _exit(127);
}

// False when both ends are closed.
bool Collect(Fd (&ends)[2], Ran* ran, uint64_t end_ns) {
    pollfd entries[2] = {{ends[0].get(), POLLIN, 0}, {ends[1].get(), POLLIN, 0}};
    const uint64_t now = BootNow();
    if (now >= end_ns || poll(entries, 2, static_cast<int>((end_ns - now) / 1'000'000) + 1) < 0)
        return errno == EINTR;
    std::string* texts[2] = {&ran->out, &ran->err};
    for (int i = 0; i < 2; i++) {
        if (!entries[i].revents) continue;
        char bytes[4096];
        const ssize_t n = read(ends[i].get(), bytes, sizeof(bytes));
        if (n <= 0) ends[i].Reset();
        if (n > 0 && texts[i]->size() < kMaxOutput) texts[i]->append(bytes, static_cast<size_t>(n));
    }
    return ends[0].ok() || ends[1].ok();
}

}  // namespace

StatusOr<Ran> RunProcess(const std::vector<std::string>& args, int patience_seconds) {
    std::vector<char*> argv;
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
    Fd out_write(out[1]);
    Fd ends[2] = {Fd(out[0]), Fd()};
    if (pipe2(err, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
    Fd err_write(err[1]);
    ends[1] = Fd(err[0]);
    Ran ran;
    ran.forked_ns = BootNow();
    const pid_t pid = fork();
    if (pid < 0) return ErrnoStatus(errno, absl::StrCat("fork ", args[0]));
    if (pid == 0) Become(argv, out_write.get(), err_write.get());
    out_write.Reset();
    err_write.Reset();
    const uint64_t end_ns = ran.forked_ns + static_cast<uint64_t>(patience_seconds) * 1'000'000'000;
    while (Collect(ends, &ran, end_ns)) continue;
    const bool late = BootNow() >= end_ns;
    if (late) (void)kill(pid, SIGKILL);
    int status = 0;
    if (waitpid(pid, &status, 0) != pid) return ErrnoStatus(errno, absl::StrCat("wait for ", args[0]));
    ran.ended_ns = BootNow();
    if (late)
        return absl::DeadlineExceededError(
            absl::StrCat(args[0], " did not end within ", patience_seconds, " s"));
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ran;
}

}  // namespace stockade::bench
