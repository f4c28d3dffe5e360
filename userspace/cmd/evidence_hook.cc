#include "userspace/cmd/evidence_hook.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <utility>

#include "userspace/base/clock.h"

namespace stockade::cmd {
namespace {

constexpr size_t kMaxRunning = 4;        // uploads at once
constexpr size_t kMaxWaiting = 10'000;   // beyond it folders stay on the disk and are counted as failed
constexpr uint64_t kPatienceNs = 120'000'000'000;

}  // namespace

// Who is uploading goes on: it is a process of its own, and the folder is there.
EvidenceHook::~EvidenceHook() = default;

void EvidenceHook::Tell(const std::string& folder) {
    if (!on()) return;
    if (waiting_.size() >= kMaxWaiting) {
        ++failed_;
        return;
    }
    waiting_.push_back(folder);
}

uint64_t EvidenceHook::Turn() {
    const uint64_t now = BootNow();
    std::erase_if(running_, [&](Running& hook) {
        int status = 0;
        const pid_t got = waitpid(hook.pid, &status, WNOHANG);
        if (got == 0 && now >= hook.deadline_ns && !std::exchange(hook.killed, true)) (void)kill(hook.pid, SIGKILL);
        if (got == 0) return false;
        if (got < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) ++failed_;
        return true;
    });
    while (!waiting_.empty() && running_.size() < kMaxRunning) {
        std::string folder = std::move(waiting_.front());
        waiting_.pop_front();
        char* argv[] = {program_.data(), folder.data(), nullptr};
        char* env[] = {nullptr};
        // What the agent blocks is for its own threads.
        posix_spawnattr_t attributes;
        sigset_t none;
        sigemptyset(&none);
        (void)posix_spawnattr_init(&attributes);
        (void)posix_spawnattr_setsigmask(&attributes, &none);
        (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
        pid_t pid = 0;
        if (posix_spawn(&pid, program_.c_str(), nullptr, &attributes, argv, env) == 0) {
            running_.push_back({.pid = pid, .deadline_ns = now + kPatienceNs});
        } else {
            ++failed_;
        }
        (void)posix_spawnattr_destroy(&attributes);
    }
    return std::exchange(failed_, 0);
}

}  // namespace stockade::cmd
