// One command in one microVM, from QEMU's start until nothing of it is left. The guest is hostile: whatever it does, the
// answer is one result with a state and a reason, within the time that each stage may take.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/guest/confine.h"
#include "userspace/guest/conversation.h"
#include "userspace/guest/machine.h"
#include "userspace/guest/out_store.h"

namespace stockade::guest {

// In milliseconds. A quiet machine boots in two seconds under emulation; what else runs can make it twenty.
struct GuestTimeouts {
    int boot_ms = 60000;   // QEMU's start until all ports have said Hello
    int start_ms = 30000;  // the order to run until the command runs
    int run_ms = 0;        // the command; 0 = for ever
    int end_ms = 60000;    // its end until all of /out is here
    int power_off_ms =
        15000;  // the host's Ack until QEMU has ended by itself; after that it is killed, which changes no result
    int kill_ms = 10000;  // SIGKILL until QEMU is gone
};

// Descriptors are borrowed.
struct GuestSpec {
    MachineOptions machine;  // its accelerator is chosen here
    bool allow_emulation = false;
    // Also where KVM seems to work: a host can have the device, make a machine, and run none.
    bool force_emulation = false;
    ConfineOptions confine;  // its kvm is set here
    int kernel_fd = -1, initramfs_fd = -1, root_fd = -1;
    int input_fd = -1;  // -1 = no /in

    std::vector<std::string> argv, env;
    std::string cwd = "/", hostname = "guest";
    uint32_t uid = 1000, gid = 1000;  // in the guest
    uint64_t tmp_bytes = 64 << 20;

    int stdin_fd = -1;                   // -1 = empty
    int stdout_fd = -1, stderr_fd = -1;  // -1 = thrown away
    int cancel_fd = -1;                  // readable or closed at its other end = end the sandbox
    int out_fd = -1;  // an empty directory of the caller's own (out_store.h); -1 = what comes is thrown away
    OutLimits out_limits;
    std::function<void(absl::string_view)> records;  // bytes of the guest's agent; guest-reported
    GuestTimeouts timeouts;
};

enum class GuestState {
    kCompleted,   // `exited` is the command's
    kNotStarted,  // the guest could not run the command: `error` and reason are guest-reported
    kTimedOut,    // in `stage`
    kProtocol,    // the guest broke the rules of the conversation, or the host could not take what it said
    kLost,        // the guest or QEMU ended before all was told
    kCancelled,
};
const char* GuestStateName(GuestState state);

struct GuestResult {
    GuestState state = GuestState::kLost;
    Stage stage = Stage::kBooting;  // the last one that was reached
    std::string reason;             // empty for kCompleted

    // Guest-reported.
    std::optional<Exited> exited;
    uint32_t error = 0;  // errno of kNotStarted
    std::string kernel;
    OutReport out;
    std::string console_tail;

    // Host-seen.
    Accelerator accelerator = Accelerator::kTcg;
    std::string qemu_errors;
    int qemu_status = 0;  // of waitpid(2)
    bool gone = false;    // QEMU was waited for, and with it its pid namespace is empty
    uint64_t stdout_bytes = 0, stderr_bytes = 0, records_bytes = 0;
    // BootNow() at QEMU's start, and when it reached a stage; 0 = never.
    uint64_t begin_ns = 0, ready_ns = 0, started_ns = 0, exited_ns = 0, complete_ns = 0, gone_ns = 0;
};

// Blocks until nothing is left. An error only where nothing was started. Call it from a thread that lives as long (QEMU ends
// with it); signals of the caller do not end it. The caller ignores SIGPIPE:
// whoever reads the command's output may go away.
StatusOr<GuestResult> RunGuest(const GuestSpec& spec);

}  // namespace stockade::guest
