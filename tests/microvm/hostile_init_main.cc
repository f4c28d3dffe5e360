// Pid 1 of a guest that means harm: what it does comes as HOSTILE=... on the kernel's command line.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

#include "userspace/guest/init_system.h"

namespace stockade::guest {
namespace {

bool Is(const char* what) {
    const char* said = getenv("HOSTILE");
    return said != nullptr && strcmp(said, what) == 0;
}

[[noreturn]] void Hang() {
    while (true) pause();
}

[[noreturn]] void Panic() { _exit(1); }  // pid 1 may not

void SendEntry(GuestPorts& ports, const std::string& path, uint64_t size) {
    Entry entry;
    entry.set_path(path);
    entry.set_mode(0644);
    entry.set_size_bytes(size);
    (void)ports[3].Tell(Kind::kEntry, entry);
}

Status Serve() {
    if (Is("panics_at_once")) Panic();
    SK_RETURN_IF_ERROR(MountBase());
    SK_RETURN_IF_ERROR(LoadModules());
    if (Is("powers_off_at_once")) PowerOff();
    SK_ASSIGN_OR_RETURN(GuestPorts ports, OpenPorts());
    if (Is("says_nothing")) Hang();
    if (Is("babbles")) {
        (void)!write(ports[1].fd(), std::string(4096, 'A').data(), 4096);
        Hang();
    }
    for (GuestPort& port : ports) SK_RETURN_IF_ERROR(port.SayHello("hostile"));
    SK_RETURN_IF_ERROR(ports[0].Receive().status());
    if (Is("never_starts")) Hang();
    SK_RETURN_IF_ERROR(ports[0].Send(Kind::kStarted, ""));
    if (Is("panics")) Panic();
    if (Is("powers_off")) PowerOff();
    // Never reads stdin, and writes to all ports and the console as fast as it can.
    if (Is("floods")) {
        const std::string chunk(kMaxDataBytes, 'x');
        while (true) {
            (void)ports[1].Send(Kind::kStdout, chunk);
            (void)ports[2].Send(Kind::kRecords, chunk);
            (void)!write(2, chunk.data(), 4096);
        }
    }
    if (Is("leads_out")) SendEntry(ports, "../escaped", 0);
    if (Is("promises_much")) SendEntry(ports, "f", uint64_t{1} << 40);
    if (Is("huge_frame")) (void)!write(ports[3].fd(), "SG\x01\x19\xff\xff\xff\x7f", 8);
    if (Is("leads_out") || Is("promises_much") || Is("huge_frame")) Hang();
    Exited exited;
    SK_RETURN_IF_ERROR(ports[0].Tell(Kind::kExited, exited));
    for (size_t i : {1, 2, 3}) SK_RETURN_IF_ERROR(ports[i].SayEnd());
    if (Is("lies_about_counts")) {
        End end;
        end.set_frames(1000);
        SK_RETURN_IF_ERROR(ports[0].Tell(Kind::kEnd, end));
        Hang();
    }
    if (Is("never_ends")) Hang();
    if (Is("powers_off_before_its_end")) PowerOff();
    SK_RETURN_IF_ERROR(ports[0].SayEnd());
    if (Is("ignores_the_ack")) Hang();
    return ports[0].Receive().status();
}

}  // namespace
}  // namespace stockade::guest

int main() {
    (void)stockade::guest::Serve();
    stockade::guest::PowerOff();
}
