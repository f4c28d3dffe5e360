// The second lock, from the same policy: which of its lists Landlock is given.
#pragma once

#include "userspace/api/frame.h"
#include "userspace/kernel/sensor.h"
#include "userspace/policy/compile.h"

namespace stockade::cmd {

// Under `signal`: read and write lists, and exec where its violation is deny. Under `lsm`: all
// lists where the kernel asks bpf before Landlock, else those whose violation is deny, for what
// Landlock refuses first BPF never sees and cannot punish. Nothing under mode: observe.
api::Landlock LandlockFor(const policy::ResolvedPolicy& policy, const policy::CompiledPolicy& compiled,
                          kernel::Backend backend, bool bpf_before_landlock);

// From /sys/kernel/security/lsm. False when unknown.
bool BpfBeforeLandlock();

}  // namespace stockade::cmd
