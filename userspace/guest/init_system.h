// What the guest's init does to the machine around the command: mounts, modules, ports, clock, entropy, the end.
#pragma once

#include <array>

#include "userspace/guest/guest_port.h"

namespace stockade::guest {

using GuestPorts = std::array<GuestPort, kPorts>;

// /proc, /sys and /dev of init's own.
Status MountBase();
// Each file of /modules, in the order of their names.
Status LoadModules();
// Those of the names of PortName(). The kernel makes their nodes on its own time: waits up to ten seconds.
StatusOr<GuestPorts> OpenPorts();
// The host's time, and its random bytes credited: no snapshot and no boot without a source gives two guests the same.
Status SetClockAndEntropy(const RunOrder& run);
// Makes the command's tree at kRoot: the image read-only, own /proc, /dev, /tmp, /out, and /in where there is one.
inline constexpr const char* kRoot = "/root";
Status PrepareRoot(const RunOrder& run);
[[noreturn]] void PowerOff();

}  // namespace stockade::guest
