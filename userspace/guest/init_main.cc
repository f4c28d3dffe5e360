// First and only program of the initramfs: makes the guest ready, runs one command as the host says, reports, powers off.
// It is pid 1: where it dies the kernel panics, QEMU ends, and the host sees a guest that ended too early.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"
#include "userspace/guest/init_archive.h"
#include "userspace/guest/init_command.h"
#include "userspace/guest/init_relay.h"
#include "userspace/guest/init_system.h"

namespace stockade::guest {
namespace {

GuestPort& At(GuestPorts& ports, Port port) { return ports[static_cast<size_t>(port)]; }

StatusOr<Fd> WatchChildren() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return ErrnoStatus(errno, "block SIGCHLD");
    // A command that does not read its stdin is no reason to die.
    if (signal(SIGPIPE, SIG_IGN) == SIG_ERR) return ErrnoStatus(errno, "ignore SIGPIPE");
    Fd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd.ok()) return ErrnoStatus(errno, "signalfd");
    return fd;
}

Status TellFailed(GuestPorts& ports, const StartFailure& failure) {
    Failed failed;
    failed.set_step(std::string(failure.status.message().substr(0, 4096)));
    failed.set_error(static_cast<uint32_t>(failure.error));
    return At(ports, Port::kControl).Tell(Kind::kFailed, failed);
}

Status Prepare(const RunOrder& run) {
    if (sethostname(run.hostname().data(), run.hostname().size()) != 0)
        return ErrnoStatus(errno, "set the host name");
    SK_RETURN_IF_ERROR(SetClockAndEntropy(run));
    return PrepareRoot(run);
}

// The command from its start to the last byte of /out.
Status RunOne(const RunOrder& run, GuestPorts& ports, int children) {
    Command command;
    StartFailure failure{Prepare(run), 0};
    if (!failure.status.ok() || !StartCommand(run, &command, &failure)) return TellFailed(ports, failure);
    GuestPort& control = At(ports, Port::kControl);
    GuestPort& stdio = At(ports, Port::kStdio);
    SK_RETURN_IF_ERROR(control.Send(Kind::kStarted, ""));
    SK_ASSIGN_OR_RETURN(const Exited exited, RelayUntilExit(command, control, stdio, children));
    EndEverything();
    SK_RETURN_IF_ERROR(DrainOutput(command, stdio));
    SK_RETURN_IF_ERROR(control.Tell(Kind::kExited, exited));
    SK_ASSIGN_OR_RETURN(Fd out, Fd::Open(absl::StrCat(kRoot, "/out"), O_RDONLY | O_DIRECTORY));
    OutLimits limits;
    limits.max_bytes = run.out_bytes();
    limits.max_entries = run.out_entries();
    limits.max_depth = run.out_depth();
    return ArchiveOut(out.get(), limits, At(ports, Port::kOut));
}

Status Serve() {
    SK_RETURN_IF_ERROR(MountBase());
    SK_RETURN_IF_ERROR(LoadModules());
    SK_ASSIGN_OR_RETURN(Fd children, WatchChildren());
    SK_ASSIGN_OR_RETURN(GuestPorts ports, OpenPorts());
    utsname name{};
    if (uname(&name) != 0) return ErrnoStatus(errno, "uname");
    for (GuestPort& port : ports) SK_RETURN_IF_ERROR(port.SayHello(name.release));
    GuestPort& control = At(ports, Port::kControl);
    SK_ASSIGN_OR_RETURN(const Frame order, control.Receive());
    if (order.kind != Kind::kRun) return absl::InvalidArgumentError("the host does not say what to run");
    SK_ASSIGN_OR_RETURN(const RunOrder run, ParseMessage<RunOrder>(order.body));
    SK_RETURN_IF_ERROR(RunOne(run, ports, children.get()));
    for (Port port : {Port::kStdio, Port::kEvents, Port::kOut, Port::kControl})
        SK_RETURN_IF_ERROR(At(ports, port).SayEnd());
    // The host has it all when it says so, and not when a write has returned: the rest would go down with the machine.
    SK_ASSIGN_OR_RETURN(const Frame ack, control.Receive());
    return ack.kind == Kind::kAck ? absl::OkStatus()
                                  : absl::InvalidArgumentError("the host speaks out of its place");
}

}  // namespace
}  // namespace stockade::guest

int main() {
    const stockade::Status status = stockade::guest::Serve();
    // To the console, which the host keeps the end of: the ports may be what has failed.
    if (!status.ok()) fprintf(stderr, "stockade-guest-init: %s\n", std::string(status.message()).c_str());
    stockade::guest::PowerOff();
}
