#include "userspace/cmd/agent_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>

#include "absl/strings/str_cat.h"
#include "userspace/api/channel.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/base/log.h"
#include "userspace/cmd/client.h"

namespace stockade::cmd {
namespace {

StatusOr<Fd> OpenLock(const std::string& runtime_dir) { return Fd::Open(runtime_dir + "/agent.lock", O_RDWR | O_CREAT, 0600); }

StatusOr<api::VersionReply> AskVersion(api::Channel& channel) {
    api::Message question;
    question.mutable_ping();
    SK_ASSIGN_OR_RETURN(const api::Message answer, Ask(channel, question));
    return answer.version_reply();
}

// Asks the agent at the socket to leave, if a client started it: kAlreadyExists when none did.
Status AskToLeave(const AgentLock& lock) {
    SK_ASSIGN_OR_RETURN(api::Channel channel, api::Channel::Connect(lock.socket));
    SK_ASSIGN_OR_RETURN(const api::VersionReply version, AskVersion(channel));
    if (!version.transient()) return absl::AlreadyExistsError("it is there to stay");
    const Fd process(static_cast<int>(syscall(SYS_pidfd_open, version.pid(), 0)));
    if (!process.ok()) return ErrnoStatus(errno, "open a pidfd of the agent");
    // It answers still: the number was its own when the pidfd was opened.
    SK_RETURN_IF_ERROR(AskVersion(channel).status());
    if (syscall(SYS_pidfd_send_signal, process.get(), SIGTERM, nullptr, 0) != 0) return ErrnoStatus(errno, "ask the agent to leave");
    LogInfo("the agent ", version.pid(), ", which a client started, was asked to leave");
    return absl::OkStatus();
}

bool Take(const Fd& lock) { return flock(lock.get(), LOCK_EX | LOCK_NB) == 0; }

}  // namespace

bool AgentHoldsLock(const std::string& runtime_dir) {
    const StatusOr<Fd> lock = OpenLock(runtime_dir);
    return lock.ok() && !Take(*lock) && errno == EWOULDBLOCK;
}

StatusOr<Fd> LockAgent(const AgentLock& lock) {
    if (mkdir(lock.runtime_dir.c_str(), 0750) != 0 && errno != EEXIST) return ErrnoStatus(errno, absl::StrCat("make ", lock.runtime_dir));
    SK_ASSIGN_OR_RETURN(Fd held, OpenLock(lock.runtime_dir));
    bool asked = false;
    for (const uint64_t end = BootNow() + (lock.stays ? kAgentWaitNs : 0); !Take(held); usleep(kAgentLookUs)) {
        const Status left = asked || !lock.stays ? absl::OkStatus() : AskToLeave(lock);
        asked |= lock.stays && left.ok();
        if (absl::IsAlreadyExists(left) || BootNow() >= end) {
            return absl::AlreadyExistsError(absl::StrCat("another agent runs in ", lock.runtime_dir,
                                                         ": use it, or stop it first (systemctl stop stockaded)"));
        }
    }
    // The number is for people and scripts; what counts is the lock.
    if (ftruncate(held.get(), 0) != 0) return ErrnoStatus(errno, "write agent.lock");
    (void)WriteAll(held.get(), absl::StrCat(getpid(), "\n"));
    return held;
}

}  // namespace stockade::cmd
