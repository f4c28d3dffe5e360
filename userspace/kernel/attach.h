// Links, made of a program's descriptor: of one that this process loaded as of one that it found pinned, which libbpf has no call for.
#pragma once

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

struct bpf_program;

namespace stockade::kernel {

// `program` says what kind it is, `program_fd` which. `cgroup_fd` < 0: it is of no cgroup.
StatusOr<Fd> AttachProgram(const bpf_program* program, int program_fd, int cgroup_fd);
// The link is attached still, and to this cgroup if it is of one: a cgroup's can be detached under whoever holds them.
bool StandsOn(int link_fd, int cgroup_fd);

}  // namespace stockade::kernel
