#include "userspace/cmd/capabilities.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "userspace/base/errno.h"

namespace stockade::cmd {
namespace {

constexpr std::array kKept = {CAP_BPF,        CAP_PERFMON, CAP_NET_ADMIN,
                              CAP_SYS_PTRACE, CAP_KILL,    CAP_DAC_READ_SEARCH};

bool IsKept(int capability) {
    for (const int kept : kKept) {
        if (kept == capability) return true;
    }
    return false;
}

}  // namespace

Status DropCapabilities() {
    // The bounding set first: dropping from it needs CAP_SETPCAP.
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
        if (!IsKept(capability) && prctl(PR_CAPBSET_DROP, capability) != 0) {
            return ErrnoStatus(errno, "drop a capability from the bounding set");
        }
    }
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, 2> data{};
    if (syscall(SYS_capget, &header, data.data()) != 0) {
        return ErrnoStatus(errno, "read the capabilities");
    }
    std::array<__user_cap_data_struct, 2> kept{};
    for (const int capability : kKept) {
        const uint32_t bit = 1u << (capability % 32);
        kept[capability / 32].permitted |= data[capability / 32].permitted & bit;
        kept[capability / 32].effective |= data[capability / 32].permitted & bit;
    }
    if (syscall(SYS_capset, &header, kept.data()) != 0) {
        return ErrnoStatus(errno, "drop the capabilities that are not needed any more");
    }
    return absl::OkStatus();
}

}  // namespace stockade::cmd
