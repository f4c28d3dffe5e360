#include "tests/dns/unbound.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/dns/fake_upstream.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"

namespace stockade {
namespace {

constexpr char kBinary[] = "/usr/sbin/unbound";
constexpr uint64_t kStartNs = 20'000'000'000;

// Iteration from a zone that it has itself: CNAMEs are followed, answers have RA, and nothing leaves the machine.
// Tunnels' servers take a query for a part of their names, as minimisation makes them, for a broken one.
constexpr char kConfig[] = R"(
    use-syslog: no
    do-daemonize: no
    chroot: ""
    username: ""
    pidfile: ""
    num-threads: 1
    do-ip6: no
    module-config: "iterator"
    access-control: 0.0.0.0/0 allow
    local-zone: "test." nodefault
    root-hints: ""
    do-not-query-localhost: no
    qname-minimisation: no
    infra-host-ttl: 0
remote-control:
    control-enable: no
auth-zone:
    zonefile: "zone"
    for-downstream: no
    for-upstream: yes
    fallback-enabled: no
)";
// Nothing but what a stub has.
constexpr char kEmptyRoot[] = ". 3600 IN SOA a. b. 1 3600 600 86400 60\n. 3600 IN NS a.\n";

bool IsListening(const UnboundOptions& options) {
    const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(options.port);
    address.sin_addr.s_addr = inet_addr(options.address.c_str());
    return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

StatusOr<std::unique_ptr<Unbound>> Unbound::Start(UnboundOptions options) {
    std::string directory = "/tmp/stockade-unbound.XXXXXX";
    if (!mkdtemp(directory.data())) return ErrnoStatus(errno, "make a directory for unbound");
    // Free a moment ago. Whoever takes it meanwhile makes this test fail, which is rare enough.
    if (options.port == 0) options.port = PortOf(BoundPair().first.get());
    std::unique_ptr<Unbound> made(new Unbound(directory, std::move(options)));
    SK_RETURN_IF_ERROR(made->WriteFiles());
    SK_RETURN_IF_ERROR(made->Run());
    SK_RETURN_IF_ERROR(made->AwaitPort());
    return made;
}

Unbound::~Unbound() {
    if (pid_ > 0) {
        kill(pid_, SIGTERM);
        waitpid(pid_, nullptr, 0);
    }
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
}

std::string Unbound::Config() const {
    std::string text = absl::StrCat("server:\n    directory: \"", directory_,
                                    "\"\n    interface: ", options_.address, "\n    port: ", options_.port, "\n",
                                    options_.more, kConfig, "    name: \"", options_.stubs.empty() ? "test." : ".", "\"\n");
    for (const auto& [zone, port] : options_.stubs)
        absl::StrAppend(&text, "stub-zone:\n    name: \"", zone, "\"\n    stub-addr: 127.0.0.1@", port, "\n");
    return text;
}

Status Unbound::WriteFiles() const {
    std::error_code error;
    // A copy: AppArmor's profile is for the path, and keeps it from files in /tmp.
    std::filesystem::copy_file(kBinary, directory_ + "/unbound", error);
    if (error)
        return absl::NotFoundError(
            absl::StrCat("copy ", kBinary, " (./dev setup installs it): ", error.message()));
    std::ofstream(directory_ + "/conf") << Config();
    std::ofstream(directory_ + "/zone") << (options_.stubs.empty() ? options_.zone : kEmptyRoot);
    return absl::OkStatus();
}

Status Unbound::Run() {
    const std::string binary = directory_ + "/unbound", config = directory_ + "/conf",
                      log = directory_ + "/log";
    pid_ = fork();
    if (pid_ < 0) return ErrnoStatus(errno, "fork for unbound");
    if (pid_ > 0) return absl::OkStatus();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (options_.in_child) options_.in_child();
    const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dup2(fd, STDERR_FILENO);
    execl(binary.c_str(), "unbound", "-d", "-c", config.c_str(), nullptr);
    _exit(127);
}

Status Unbound::AwaitPort() const {
    const uint64_t until = BootNow() + kStartNs;
    while (BootNow() < until) {
        if (IsListening(options_)) return absl::OkStatus();
        if (waitpid(pid_, nullptr, WNOHANG) == pid_) break;
        poll(nullptr, 0, 10);
    }
    std::ifstream log(directory_ + "/log");
    return absl::UnavailableError(
        absl::StrCat("unbound did not start: ", std::string(std::istreambuf_iterator(log), {})));
}

std::vector<std::string> Unbound::Asked() const {
    // "[time] unbound[pid:thread] info: 127.0.0.1 name. TYPE CLASS"
    std::ifstream log(directory_ + "/log");
    std::vector<std::string> asked;
    for (std::string line; std::getline(log, line);) {
        const std::vector<std::string> words = absl::StrSplit(line, ' ');
        if (words.size() == 7 && words[2] == "info:" && words[6] == "IN")
            asked.push_back(absl::StrCat(words[4], " ", words[5], " ", words[6]));
    }
    return asked;
}

}  // namespace stockade
