// The second lock, from the same policy: which of its lists Landlock is given.
#pragma once

#include <string>

#include "userspace/api/frame.h"
#include "userspace/kernel/sensor.h"
#include "userspace/policy/compile.h"

namespace stockade::cmd {

// Under `signal`: read and write lists, and exec where its violation is deny. Under `lsm`: all
// lists where the kernel asks bpf before Landlock, else those whose violation is deny, for what
// Landlock refuses first BPF never sees and cannot punish. Nothing under mode: observe.
struct LandlockChoice {
    api::Landlock domain;
    std::string left_out;  // why the policy asks for a domain and gets none; empty otherwise
};
LandlockChoice LandlockFor(const policy::ResolvedPolicy& policy, const policy::CompiledPolicy& compiled,
                           kernel::Backend backend, bool bpf_before_landlock);

// It refuses to read and to write where nothing grants it.
bool HasFileDomain(const api::Landlock& domain);

// Whether it refuses to list directories. Not where "/" is listed, even alone: the right to list a directory is one
// to list all below it.
bool HidesDirectories(const api::Landlock& domain);

// From /sys/kernel/security/lsm. False when unknown.
bool BpfBeforeLandlock();

}  // namespace stockade::cmd
