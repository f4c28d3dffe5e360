#include "userspace/launch/seccomp.h"

#include <fcntl.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include "absl/strings/str_cat.h"
#include "bpf/wire/policy.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"
#include "userspace/launch/seccomp_context.h"
#include "userspace/launch/seccomp_default.h"

namespace stockade::launch {
namespace {

// A filter of the kernel holds 4,096 instructions (BPF_MAXINSNS).
constexpr size_t kMaxInstructions = 4096;

Status AllowNames(const SeccompContext& context, std::span<const char* const> names) {
    for (const char* name : names) {
        int number = seccomp_syscall_resolve_name(name);
        // Unknown to this libseccomp, or not of this architecture.
        if (number < 0) continue;
        SK_RETURN_IF_ERROR(NegErrnoStatus(seccomp_rule_add(context.get(), SCMP_ACT_ALLOW, number, 0),
                                          absl::StrCat("seccomp: ", name)));
    }
    return absl::OkStatus();
}

}  // namespace

StatusOr<SeccompContext> SeccompContext::Create(uint32_t default_action) {
    SeccompContext context(seccomp_init(default_action));
    if (context.get() == nullptr) return absl::InternalError("seccomp_init refused the default action");
    // System calls of another ABI (int 0x80, x32) are numbered differently: no rule would fit.
    int rc = seccomp_attr_set(context.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    SK_RETURN_IF_ERROR(NegErrnoStatus(rc, "seccomp: foreign ABI"));
    // A tree instead of a list: compiled and run in logarithmic time.
    rc = seccomp_attr_set(context.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
    SK_RETURN_IF_ERROR(NegErrnoStatus(rc, "seccomp: optimise"));
    return context;
}

StatusOr<std::vector<sock_filter>> SeccompContext::Export() const {
    Fd memory(memfd_create("seccomp", MFD_CLOEXEC));
    if (!memory.ok()) return ErrnoStatus(errno, "memfd for a filter");
    SK_RETURN_IF_ERROR(NegErrnoStatus(seccomp_export_bpf(get(), memory.get()), "seccomp: compile"));
    if (lseek(memory.get(), 0, SEEK_SET) != 0) return ErrnoStatus(errno, "rewind a filter");
    SK_ASSIGN_OR_RETURN(std::string bytes, ReadAll(memory.get(), kMaxInstructions * sizeof(sock_filter)));
    std::vector<sock_filter> filter(bytes.size() / sizeof(sock_filter));
    memcpy(filter.data(), bytes.data(), filter.size() * sizeof(sock_filter));
    return filter;
}

StatusOr<std::vector<sock_filter>> DefaultProfile() {
    SK_ASSIGN_OR_RETURN(SeccompContext context, SeccompContext::Create(SCMP_ACT_ERRNO(ENOSYS)));
    SK_RETURN_IF_ERROR(AllowNames(context, kAllowedCalls));
    SK_RETURN_IF_ERROR(AllowNames(context, kFloorCalls));
    for (int number : kAllowedNewCalls) {
        SK_RETURN_IF_ERROR(NegErrnoStatus(seccomp_rule_add(context.get(), SCMP_ACT_ALLOW, number, 0),
                                          absl::StrCat("seccomp: call ", number)));
    }
    for (uint64_t persona : kAllowedPersonalities) {
        int rc = seccomp_rule_add(context.get(), SCMP_ACT_ALLOW, SCMP_SYS(personality), 1,
                                  SCMP_A0_64(SCMP_CMP_EQ, persona));
        SK_RETURN_IF_ERROR(NegErrnoStatus(rc, "seccomp: personality"));
    }
    return context.Export();
}

StatusOr<SeccompProgram> CompileSeccomp(uint64_t grants, const std::string& oci_json, bool writable_binds) {
    if (writable_binds && (grants >> SK_GRANT_IO_URING & 1) != 0) {
        return absl::InvalidArgumentError(
            "a writable bind and the grant io_uring exclude each other: files opened through io_uring pass "
            "by seccomp, and could be left on the host as set-uid programs of the caller");
    }
    SeccompProgram program;
    program.floor = SeccompFloor(grants, writable_binds);
    if (oci_json.empty()) {
        SK_ASSIGN_OR_RETURN(program.profile, DefaultProfile());
    } else {
        SK_ASSIGN_OR_RETURN(program.profile, OciProfile(oci_json));
    }
    return program;
}

}  // namespace stockade::launch
