#include "userspace/guest/driver.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/guest/driver_loop.h"

namespace stockade::guest {
namespace {

StatusOr<std::pair<Fd, Fd>> MakePair() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        return ErrnoStatus(errno, "make a socket pair");
    return std::pair(Fd(fds[0]), Fd(fds[1]));
}

Status CheckSpec(const GuestSpec& spec) {
    if (spec.argv.empty()) return absl::InvalidArgumentError("no command");
    if (spec.kernel_fd < 0 || spec.initramfs_fd < 0 || spec.root_fd < 0) {
        return absl::InvalidArgumentError("a guest needs a kernel, an initramfs and a root image");
    }
    if (spec.uid == 0) return absl::InvalidArgumentError("the command is not run as the guest's root");
    return absl::OkStatus();
}

StatusOr<std::string> EncodeRun(const GuestSpec& spec) {
    RunOrder run;
    std::string entropy(64, '\0');
    if (getrandom(entropy.data(), entropy.size(), 0) != static_cast<ssize_t>(entropy.size()))
        return ErrnoStatus(errno, "getrandom");
    run.set_entropy(entropy);
    for (const std::string& word : spec.argv) run.add_argv(word);
    for (const std::string& word : spec.env) run.add_env(word);
    run.set_cwd(spec.cwd);
    run.set_hostname(spec.hostname);
    run.set_uid(spec.uid);
    run.set_gid(spec.gid);
    run.set_has_input(spec.input_fd >= 0);
    run.set_out_bytes(spec.out_limits.max_bytes);
    run.set_out_entries(spec.out_limits.max_entries);
    run.set_out_depth(spec.out_limits.max_depth);
    run.set_tmp_bytes(spec.tmp_bytes);
    run.set_wall_ns(WallNow());
    return EncodeMessage(Kind::kRun, run);
}

struct Started {
    Confined qemu;
    DriverEnds ends;
};

StatusOr<Started> StartMachine(const GuestSpec& spec, Accelerator accelerator) {
    Started started;
    MachineFds numbers;
    std::vector<int> fds;
    std::vector<Fd> theirs;
    auto give = [&fds](int fd) {
        fds.push_back(fd);
        return kFirstFd + static_cast<int>(fds.size()) - 1;
    };
    numbers.kernel = give(spec.kernel_fd);
    numbers.initramfs = give(spec.initramfs_fd);
    numbers.root = give(spec.root_fd);
    if (spec.input_fd >= 0) numbers.input = give(spec.input_fd);
    for (size_t i = 0; i < kPorts + 1; ++i) {
        SK_ASSIGN_OR_RETURN(auto pair, MakePair());
        const int number = give(pair.second.get());
        theirs.push_back(std::move(pair.second));
        if (i < kPorts) {
            numbers.ports.push_back(number);
            started.ends.ports[i] = std::move(pair.first);
        } else {
            numbers.console = number;
            started.ends.console = std::move(pair.first);
        }
    }
    MachineOptions machine = spec.machine;
    machine.accelerator = accelerator;
    ConfineOptions confine = spec.confine;
    confine.kvm = accelerator == Accelerator::kKvm;
    SK_ASSIGN_OR_RETURN(started.qemu, StartConfined(QemuCommand(machine, numbers), fds, confine));
    return started;
}

}  // namespace

const char* GuestStateName(GuestState state) {
    switch (state) {
        case GuestState::kCompleted:
            return "completed";
        case GuestState::kNotStarted:
            return "not started";
        case GuestState::kTimedOut:
            return "timed out";
        case GuestState::kProtocol:
            return "broke the protocol";
        case GuestState::kLost:
            return "lost";
        case GuestState::kCancelled:
            return "cancelled";
    }
    return "?";
}

StatusOr<GuestResult> RunGuest(const GuestSpec& spec) {
    SK_RETURN_IF_ERROR(CheckSpec(spec));
    Accelerator accelerator = Accelerator::kTcg;
    if (!spec.force_emulation) {
        SK_ASSIGN_OR_RETURN(accelerator, ChooseAccelerator(spec.allow_emulation));
    }
    // Before anything runs: a command that is too long is told so at once. Its clock is a boot late; the loop encodes it anew.
    SK_RETURN_IF_ERROR(EncodeRun(spec).status());
    const uint64_t begin_ns = BootNow();
    SK_ASSIGN_OR_RETURN(Started started, StartMachine(spec, accelerator));
    DriverLoop loop(spec, started.qemu, std::move(started.ends), [&spec] { return EncodeRun(spec); });
    GuestResult result = loop.Run();
    auto status = EndConfined(started.qemu, spec.timeouts.kill_ms);
    result.gone = status.ok();
    if (status.ok()) result.qemu_status = *status;
    if (!status.ok())
        absl::StrAppend(&result.reason, result.reason.empty() ? "" : "; ", status.status().message());
    loop.TakeLastWords(&result);
    result.accelerator = accelerator;
    result.begin_ns = begin_ns;
    result.gone_ns = BootNow();
    return result;
}

}  // namespace stockade::guest
