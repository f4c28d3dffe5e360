#include "userspace/kernel/attach.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/perf_event.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/base/errno.h"

namespace stockade::kernel {
namespace {

constexpr size_t kMaxIdBytes = 32;

// `tracepoint` as in "raw_syscalls/sys_exit". The link holds the event, and its program runs on every CPU.
StatusOr<Fd> AttachTracepoint(absl::string_view tracepoint, int program_fd) {
    SK_ASSIGN_OR_RETURN(
        const std::string text,
        ReadFile(absl::StrCat("/sys/kernel/tracing/events/", tracepoint, "/id"), kMaxIdBytes));
    perf_event_attr attributes{};
    attributes.type = PERF_TYPE_TRACEPOINT;
    attributes.size = sizeof(attributes);
    if (!absl::SimpleAtoi(text, &attributes.config))
        return absl::DataLossError(absl::StrCat("the number of ", tracepoint, " is none"));
    Fd event(static_cast<int>(syscall(SYS_perf_event_open, &attributes, -1, 0, -1, PERF_FLAG_FD_CLOEXEC)));
    if (!event.ok()) return ErrnoStatus(errno, absl::StrCat("open the event of ", tracepoint));
    Fd link(bpf_link_create(program_fd, event.get(), BPF_PERF_EVENT, nullptr));
    if (!link.ok()) return ErrnoStatus(errno, absl::StrCat("link to ", tracepoint));
    return link;
}

}  // namespace

StatusOr<Fd> AttachProgram(const bpf_program* program, int program_fd, int cgroup_fd) {
    absl::string_view section = bpf_program__section_name(program);
    if (absl::ConsumePrefix(&section, "tp/")) return AttachTracepoint(section, program_fd);
    Fd link(bpf_link_create(program_fd, cgroup_fd < 0 ? 0 : cgroup_fd,
                            bpf_program__expected_attach_type(program), nullptr));
    if (!link.ok()) return ErrnoStatus(errno, "make a link");
    return link;
}

bool StandsOn(int link_fd, int cgroup_fd) {
    bpf_link_info info{};
    uint32_t size = sizeof(info);
    if (bpf_obj_get_info_by_fd(link_fd, &info, &size) != 0) return false;
    if (cgroup_fd < 0) return info.type != BPF_LINK_TYPE_CGROUP;
    struct stat cgroup{};
    return info.type == BPF_LINK_TYPE_CGROUP && fstat(cgroup_fd, &cgroup) == 0 &&
           info.cgroup.cgroup_id == cgroup.st_ino;
}

}  // namespace stockade::kernel
