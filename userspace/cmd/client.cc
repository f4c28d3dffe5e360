#include "userspace/cmd/client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/cmd/agent_lock.h"
#include "userspace/cmd/config_record.h"
#include "userspace/model/text.h"

namespace stockade::cmd {
namespace {

// Loading and verifying the programs takes some 500 ms, and on an emulated CPU half a minute.
constexpr int kStartWaitMs = 120000;
constexpr int kAnswerWaitMs = 30000;

StatusOr<std::string> SocketOf(const ClientOptions& options) {
    if (!options.socket.empty()) return options.socket;
    SK_ASSIGN_OR_RETURN(const Config config,
                        LoadConfig(options.config_path, options.config_path != kDefaultConfigPath));
    return config.socket_path();
}

// In the child: a daemon of its own, told by a pipe where to say that it is ready.
[[noreturn]] void ExecAgent(const ClientOptions& options, const std::string& socket, int ready_fd) {
    (void)setsid();
    (void)signal(SIGPIPE, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, nullptr);
    const int null = open("/dev/null", O_RDWR);
    const std::string runtime_dir = socket.substr(0, socket.rfind('/'));
    const std::string log = runtime_dir + "/agent.log";
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
    (void)dup2(null, 0);
    (void)dup2(out >= 0 ? out : null, 1);
    (void)dup2(out >= 0 ? out : null, 2);
    (void)dup2(ready_fd, 3);
    (void)close_range(4, ~0u, 0);
    const std::string binary = AgentBinary();
    std::vector<std::string> args = {binary, "--idle-exit",   "60s",      "--ready-fd",
                                     "3",    "--runtime-dir", runtime_dir};
    if (options.config_path != kDefaultConfigPath) {
        // The agent's working directory is another one.
        std::error_code error;
        const std::string absolute = std::filesystem::absolute(options.config_path, error);
        args.push_back("--config");
        args.push_back(error ? options.config_path : absolute);
    }
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    (void)chdir("/");
    execvp(binary.c_str(), argv.data());
    dprintf(3, "error: cannot execute %s: %s\n", binary.c_str(), strerror(errno));
    _exit(127);
}

// Reads the one line that a starting agent says.
StatusOr<std::string> ReadLine(int fd) {
    std::string line;
    const uint64_t end = BootNow() + uint64_t{kStartWaitMs} * 1'000'000;
    while (line.empty() || line.back() != '\n') {
        const uint64_t now = BootNow();
        pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
        const int rc = now >= end ? 0 : poll(&entry, 1, static_cast<int>((end - now) / 1'000'000) + 1);
        if (rc < 0 && errno == EINTR) continue;
        if (rc <= 0) return absl::DeadlineExceededError("the agent did not come up in two minutes");
        char buffer[512];
        const ssize_t n = read(fd, buffer, sizeof(buffer));
        if (n <= 0) break;
        line.append(buffer, static_cast<size_t>(n));
        if (line.size() > 65536) break;  // nobody says that much
    }
    return std::string(absl::StripSuffix(line, "\n"));
}

Status StartAgent(const ClientOptions& options, const std::string& socket) {
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
    Fd reader(pipe_fds[0]), writer(pipe_fds[1]);
    const pid_t pid = fork();
    if (pid < 0) return ErrnoStatus(errno, "fork the agent");
    if (pid == 0) {
        // A grandchild: the agent is nobody's child that we should wait for.
        if (fork() != 0) _exit(0);
        ExecAgent(options, socket, writer.get());
    }
    writer.Reset();
    (void)waitpid(pid, nullptr, 0);
    SK_ASSIGN_OR_RETURN(const std::string line, ReadLine(reader.get()));
    if (line == "ready") return absl::OkStatus();
    const std::string runtime_dir = socket.substr(0, socket.rfind('/'));
    if (line.empty()) {
        return absl::UnavailableError(
            absl::StrCat("the agent died at its start: see ", runtime_dir, "/agent.log"));
    }
    return absl::FailedPreconditionError(absl::StripPrefix(line, "error: "));
}

// An agent that is at its start is waited for, and so is one that is at its end; kUnavailable: there is none.
StatusOr<api::Channel> WaitForAgent(const std::string& runtime_dir, const std::string& socket) {
    const uint64_t end = BootNow() + kAgentWaitNs;
    while (true) {
        StatusOr<api::Channel> channel = api::Channel::Connect(socket);
        if (channel.ok() || !absl::IsUnavailable(channel.status()) || !AgentHoldsLock(runtime_dir)) return channel;
        if (BootNow() >= end) {
            return absl::DeadlineExceededError(absl::StrCat("the agent that holds ", runtime_dir, "/agent.lock does not answer at ", socket,
                                                            ": end it (its pid is in that file)"));
        }
        usleep(kAgentLookUs);
    }
}

}  // namespace

std::string AgentBinary() {
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0) return "stockaded";
    const std::string path(self, static_cast<size_t>(n));
    const std::string beside = path.substr(0, path.rfind('/') + 1) + "stockaded";
    return access(beside.c_str(), X_OK) == 0 ? beside : "stockaded";
}

StatusOr<api::Channel> ConnectAgent(const ClientOptions& options) {
    SK_ASSIGN_OR_RETURN(const std::string socket, SocketOf(options));
    StatusOr<api::Channel> channel = api::Channel::Connect(socket);
    if (!channel.ok() && geteuid() != 0) {
        return absl::PermissionDeniedError(absl::StrCat(
            channel.status().message(),
            ": use sudo; or, where an agent runs as a service whose configuration has api.policies, ",
            "be a member of the group that it names (usermod -aG stockade USER, and log in anew)"));
    }
    if (absl::IsUnavailable(channel.status())) {
        return absl::UnavailableError(absl::StrCat(
            "no agent runs (", socket, "): stockade run starts one, or systemctl start stockaded"));
    }
    return channel;
}

StatusOr<api::Channel> ConnectOrStartAgent(const ClientOptions& options) {
    StatusOr<api::Channel> channel = ConnectAgent(options);
    if (channel.ok() || !absl::IsUnavailable(channel.status())) return channel;
    SK_ASSIGN_OR_RETURN(const std::string socket, SocketOf(options));
    const std::string runtime_dir = socket.substr(0, socket.rfind('/'));
    if (mkdir(runtime_dir.c_str(), 0750) != 0 && errno != EEXIST) {
        return ErrnoStatus(errno, absl::StrCat("make ", runtime_dir));
    }
    // Of many clients that find no agent one starts it; the others wait here and then find it.
    SK_ASSIGN_OR_RETURN(const Fd lock, Fd::Open(runtime_dir + "/start.lock", O_RDWR | O_CREAT, 0600));
    if (flock(lock.get(), LOCK_EX) != 0) return ErrnoStatus(errno, "wait for the start of the agent");
    channel = WaitForAgent(runtime_dir, socket);
    if (channel.ok() || !absl::IsUnavailable(channel.status())) return channel;
    const Status started = StartAgent(options, socket);
    if (started.ok()) return api::Channel::Connect(socket);
    // One whose client was killed over its start may have come to the lock first.
    if (AgentHoldsLock(runtime_dir)) channel = WaitForAgent(runtime_dir, socket);
    return channel.ok() ? std::move(channel) : Annotate(started, "start the agent");
}

std::string OtherConfigNote(const ClientOptions& options) {
    // Who names a socket asks for that agent, whatever it runs by.
    if (!options.socket.empty()) return "";
    const StatusOr<Config> config =
        LoadConfig(options.config_path, options.config_path != kDefaultConfigPath);
    if (!config.ok()) return "";
    const std::vector<std::string> keys = DifferingKeys(*config);
    if (keys.empty()) return "";
    return absl::StrCat("the running agent was started with another configuration than ", options.config_path,
                        " (", absl::StrJoin(keys, ", "),
                        "), and its own holds for this run: restart it to change that "
                        "(systemctl restart stockaded, or kill the pid in ",
                        config->runtime_dir, "/agent.lock)");
}

Status ErrorOf(const api::Error& error) {
    return Status(static_cast<absl::StatusCode>(error.code()), error.message());
}

StatusOr<api::Message> Ask(api::Channel& channel, const api::Message& question) {
    SK_RETURN_IF_ERROR(channel.Send(question));
    SK_ASSIGN_OR_RETURN(api::Packet packet, channel.Receive(kAnswerWaitMs));
    if (packet.message.has_error()) return ErrorOf(packet.message.error());
    return std::move(packet.message);
}

int Complain(const Status& status) {
    // Lines stay lines (policies have many errors), but nothing else of a message may steer a terminal.
    std::string text = "stockade: ";
    bool first = true;
    std::string message(status.message());
    size_t at = 0;
    while (at <= message.size()) {
        const size_t end = std::min(message.find('\n', at), message.size());
        if (!first) text.append("\n");
        first = false;
        (void)model::AppendEscaped(absl::string_view(message).substr(at, end - at), &text);
        at = end + 1;
    }
    text.append("\n");
    (void)WriteAll(STDERR_FILENO, text);
    return kOwnFailure;
}

}  // namespace stockade::cmd
