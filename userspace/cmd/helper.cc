#include "userspace/cmd/helper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/cmd/shim.h"

namespace stockade::cmd {
namespace {

void DefaultSignals() {
    for (const int signo : {SIGCHLD, SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
        signal(signo, SIG_DFL);
    }
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Forks one shim. The pid, or -1 with errno.
pid_t ForkShim(api::Channel& channel, api::Packet& order, int argc, char** argv) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    channel.Close();
    DefaultSignals();
    // A session of its own: a ^C in the terminal that started a transient agent is not for it.
    (void)setsid();
    const api::StartShim& start = order.message.start_shim();
    SetProcessTitle(argc, argv, start.has_run() ? "stockade-shim" : "stockade-spare", start.id());
    _exit(RunShim(std::move(order),
                  [argc, argv, id = start.id()] { SetProcessTitle(argc, argv, "stockade-shim", id); }));
}

// Keeps the standard streams and the channel: whatever else is open belongs to the agent.
api::Channel OnlyChannel(api::Channel channel) {
    const int fd = dup3(channel.fd(), 3, O_CLOEXEC);
    if (fd < 0) return channel;
    (void)channel.Release().Release();
    (void)close_range(4, ~0u, 0);  // best effort: they would only stay open too long
    return api::Channel(Fd(fd));
}

[[noreturn]] void ServeHelper(api::Channel channel, int argc, char** argv) {
    DefaultSignals();
    if (channel.fd() != 3) channel = OnlyChannel(std::move(channel));
    // Terminals send SIGINT to the group: the helper ends with its agent and not before.
    (void)setsid();
    signal(SIGCHLD, SIG_IGN);  // shims that end are not waited for
    signal(SIGPIPE, SIG_IGN);
    SetProcessTitle(argc, argv, "stockade-helper", "");
    while (true) {
        StatusOr<api::Packet> packet = channel.Receive(-1);
        if (!packet.ok()) _exit(absl::IsUnavailable(packet.status()) ? 0 : 1);
        if (!packet->message.has_start_shim()) _exit(1);
        api::Message answer;
        api::ShimStarted& started = *answer.mutable_shim_started();
        started.set_id(packet->message.start_shim().id());
        const pid_t pid = ForkShim(channel, *packet, argc, argv);
        started.set_pid(pid);
        if (pid < 0) started.set_error(std::string(ErrnoStatus(errno, "fork a shim").message()));
        if (!channel.Send(answer).ok()) _exit(0);
    }
}

}  // namespace

void SetProcessTitle(int argc, char** argv, const char* name, const std::string& rest) {
    (void)prctl(PR_SET_NAME, name);
    if (argc < 1) return;
    // The arguments lie one behind the other; what is written over them is what ps shows.
    const size_t room = static_cast<size_t>(argv[argc - 1] + std::strlen(argv[argc - 1]) - argv[0]);
    const std::string title = rest.empty() ? std::string(name) : absl::StrCat(name, " ", rest);
    std::memset(argv[0], 0, room);
    std::memcpy(argv[0], title.data(), std::min(title.size(), room));
}

StatusOr<Helper> Helper::Fork(int argc, char** argv) {
    SK_ASSIGN_OR_RETURN(auto pair, api::Channel::Pair());
    const pid_t pid = fork();
    if (pid < 0) return ErrnoStatus(errno, "fork the helper");
    if (pid == 0) {
        pair.first.Close();
        ServeHelper(std::move(pair.second), argc, argv);
    }
    return Helper(std::move(pair.first));
}

Status Helper::Start(const api::StartShim& order, const std::vector<api::FdArg>& fds) {
    api::Message message;
    *message.mutable_start_shim() = order;
    return Annotate(channel_.Send(message, fds), "ask the helper for a shim");
}

}  // namespace stockade::cmd
