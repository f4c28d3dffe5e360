// The machine that a guest gets: QEMU's command line, and whether the host can run it on KVM. Firecracker is not built;
// it would be another maker of a command line, with its channels over vsock (docs/microvm.md).
#pragma once

#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::guest {

enum class Accelerator {
    kKvm,
    kTcg,  // Emulation: no security boundary, and slow. For tests.
};

// Opens /dev/kvm and makes a machine without processors in it: that the device is there proves little. This does not prove all:
// on a host that nests badly QEMU itself fails, or hangs until the time to boot is over; that run is `lost` or `timed out`.
bool KvmWorks();
// kFailedPrecondition where KVM does not work and emulation is not allowed.
StatusOr<Accelerator> ChooseAccelerator(bool allow_emulation, bool kvm_works = KvmWorks());

struct MachineOptions {
    std::string qemu = "/usr/bin/qemu-system-x86_64";
    Accelerator accelerator = Accelerator::kTcg;
    uint32_t memory_mib = 256;
    std::string kernel_args;  // more of them, after ours
};

// Numbers of the descriptors as QEMU has them.
struct MachineFds {
    int kernel = -1, initramfs = -1, root = -1;
    int input = -1;  // no second disk where it is -1
    int console = -1;
    std::vector<int> ports;  // in the order of Port
};

std::vector<std::string> QemuCommand(const MachineOptions& options, const MachineFds& fds);

}  // namespace stockade::guest
