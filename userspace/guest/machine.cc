#include "userspace/guest/machine.h"

#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/guest/frame.h"

namespace stockade::guest {
namespace {

// The one that the kernel has had since 2007; others were never given out.
constexpr int kKvmApiVersion = 12;

// panic=-1: at once to a reset, which -no-reboot makes QEMU's end. lsm: BPF before nothing that would hide it.
constexpr const char* kKernelArgs =
    "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic lsm=landlock,lockdown,yama,bpf";
// Timers of an emulated processor come late, which the kernel takes for a broken board.
constexpr const char* kTcgKernelArgs = "no_timer_check mitigations=off";

void AddDisk(std::vector<std::string>& command, const char* id, int set, int fd, const char* device) {
    command.insert(command.end(),
                   {"-add-fd", absl::StrCat("fd=", fd, ",set=", set), "-drive",
                    absl::StrCat("if=none,id=", id, ",file=/dev/fdset/", set, ",format=raw,readonly=on"),
                    "-device", absl::StrCat(device, ",drive=", id)});
}

}  // namespace

bool KvmWorks() {
    auto kvm = Fd::Open("/dev/kvm", O_RDWR);
    if (!kvm.ok() || ioctl(kvm->get(), KVM_GET_API_VERSION, 0) != kKvmApiVersion) return false;
    return Fd(ioctl(kvm->get(), KVM_CREATE_VM, 0)).ok();
}

StatusOr<Accelerator> ChooseAccelerator(bool allow_emulation, bool kvm_works) {
    if (kvm_works) return Accelerator::kKvm;
    if (allow_emulation) return Accelerator::kTcg;
    return absl::FailedPreconditionError(
        "KVM does not work on this host, and emulation is no security boundary: it is for tests "
        "(--allow-emulation)");
}

std::vector<std::string> QemuCommand(const MachineOptions& options, const MachineFds& fds) {
    const bool kvm = options.accelerator == Accelerator::kKvm;
    // q35 under emulation: microvm with ACPI hung now and then at the calibration of the clock there.
    const std::string suffix = kvm ? "-device" : "-pci";
    std::vector<std::string> command = {
        options.qemu, "-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-parallel",
        "none", "-no-reboot", "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny", "-machine",
        kvm ? "microvm,acpi=on,accel=kvm" : "q35,usb=off,vmport=off,smm=off,accel=tcg", "-cpu",
        kvm ? "host" : "max",
        // Two processors crash QEMU 7.2's emulation.
        "-smp", "1", "-m", absl::StrCat(options.memory_mib, "M"), "-kernel",
        absl::StrCat("/proc/self/fd/", fds.kernel), "-initrd", absl::StrCat("/proc/self/fd/", fds.initramfs),
        "-append",
        absl::StrCat(kKernelArgs, kvm ? "" : " ", kvm ? "" : kTcgKernelArgs,
                     options.kernel_args.empty() ? "" : " ", options.kernel_args),
        "-chardev", absl::StrCat("socket,id=console,fd=", fds.console), "-serial", "chardev:console"};
    AddDisk(command, "root", 1, fds.root, kvm ? "virtio-blk-device" : "virtio-blk-pci");
    if (fds.input >= 0) AddDisk(command, "input", 2, fds.input, kvm ? "virtio-blk-device" : "virtio-blk-pci");
    command.insert(command.end(), {"-device", absl::StrCat("virtio-serial", suffix, ",max_ports=8")});
    for (size_t i = 0; i < fds.ports.size(); ++i) {
        const char* name = PortName(static_cast<Port>(i));
        command.insert(command.end(),
                       {"-chardev", absl::StrCat("socket,id=", name, ",fd=", fds.ports[i]), "-device",
                        absl::StrCat("virtserialport,chardev=", name, ",name=", name)});
    }
    return command;
}

}  // namespace stockade::guest
