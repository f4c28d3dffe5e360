#include "userspace/guest/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace stockade::guest {
namespace {

using testing::HasSubstr;
using testing::Not;

const MachineFds kFds{
    .kernel = 3, .initramfs = 4, .root = 5, .input = 6, .console = 11, .ports = {7, 8, 9, 10}};

TEST(MachineTest, AllByDescriptorAndNothingByDefault) {
    const std::string line = absl::StrJoin(QemuCommand({}, kFds), " ");
    for (const char* part :
         {"-nodefaults -no-user-config",
          "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
          "-kernel /proc/self/fd/3 -initrd /proc/self/fd/4", "-add-fd fd=5,set=1",
          "file=/dev/fdset/1,format=raw,readonly=on", "-add-fd fd=6,set=2", "socket,id=control,fd=7",
          "virtserialport,chardev=out,name=out", "socket,id=console,fd=11"}) {
        EXPECT_THAT(line, HasSubstr(part));
    }
    // No network, no monitor, no file that is written.
    for (const char* part : {"-net", "-qmp", "virtio-net", "readonly=off"})
        EXPECT_THAT(line, Not(HasSubstr(part)));
}

TEST(MachineTest, EmulationAndKvmDiffer) {
    const std::string tcg = absl::StrJoin(QemuCommand({}, kFds), " ");
    EXPECT_THAT(tcg, HasSubstr("q35,usb=off,vmport=off,smm=off,accel=tcg"));
    EXPECT_THAT(tcg, HasSubstr("virtio-blk-pci"));
    MachineOptions options;
    options.accelerator = Accelerator::kKvm;
    const std::string kvm = absl::StrJoin(QemuCommand(options, kFds), " ");
    EXPECT_THAT(kvm, HasSubstr("microvm,acpi=on,accel=kvm -cpu host"));
    EXPECT_THAT(kvm, HasSubstr("virtio-blk-device"));
    EXPECT_THAT(kvm, Not(HasSubstr("mitigations=off")));
    EXPECT_THAT(kvm, Not(HasSubstr("-pci")));
}

TEST(MachineTest, EmulationIsNothingThatHappensByItself) {
    EXPECT_EQ(*ChooseAccelerator(false, true), Accelerator::kKvm);
    EXPECT_EQ(*ChooseAccelerator(true, true), Accelerator::kKvm);
    EXPECT_EQ(*ChooseAccelerator(true, false), Accelerator::kTcg);
    const auto refused = ChooseAccelerator(false, false);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--allow-emulation"));
}

TEST(MachineTest, NoSecondDiskWhereThereIsNoInput) {
    MachineFds fds = kFds;
    fds.input = -1;
    EXPECT_THAT(absl::StrJoin(QemuCommand({}, fds), " "), Not(HasSubstr("set=2")));
}

}  // namespace
}  // namespace stockade::guest
