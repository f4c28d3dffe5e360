#include "tests/live/kernel_matcher.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/selftest.skel.h"
#include "userspace/base/errno.h"

namespace stockade::live {

StatusOr<std::unique_ptr<KernelMatcher>> KernelMatcher::Create(const sk_hash_keys& keys) {
    std::unique_ptr<KernelMatcher> matcher(new KernelMatcher());
    matcher->object_ = selftest__open();
    if (!matcher->object_) return ErrnoStatus(errno, "open the selftest object");
    auto* rodata = matcher->object_->rodata;
    rodata->keys.k1 = keys.k1;
    rodata->keys.k2 = keys.k2;
    rodata->keys.seed = keys.seed;
    SK_RETURN_IF_ERROR(NegErrnoStatus(selftest__load(matcher->object_), "load the selftest programs"));
    matcher->program_fd_ = bpf_program__fd(matcher->object_->progs.selftest_path);
    matcher->policies_ = std::make_unique<kernel::PolicyMaps>(kernel::PolicyMaps::OuterFds{
        bpf_map__fd(matcher->object_->maps.policies_small), bpf_map__fd(matcher->object_->maps.policies_medium),
        bpf_map__fd(matcher->object_->maps.policies_large)});
    return matcher;
}

KernelMatcher::~KernelMatcher() {
    if (object_) selftest__destroy(object_);
}

StatusOr<uint32_t> KernelMatcher::Publish(const policy::CompiledPolicy& policy) { return policies_->Acquire(policy.cells); }

StatusOr<sk_selftest_call> KernelMatcher::Ask(int fd, int root_fd, uint32_t policy_index, uint32_t place) const {
    sk_selftest_call call{};
    call.fd = static_cast<uint32_t>(fd);
    call.root_fd = root_fd < 0 ? SK_SELFTEST_OWN_ROOT : static_cast<uint32_t>(root_fd);
    call.policy_index = policy_index;
    call.place = place;
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &call, .ctx_size_in = sizeof(call));
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_prog_test_run_opts(program_fd_, &options), "run selftest_path"));
    if (options.retval != 0) return absl::InvalidArgumentError("selftest_path does not know the descriptor");
    return call;
}

uint32_t KernelMatcher::verified_instructions() const {
    bpf_prog_info info{};
    uint32_t size = sizeof(info);
    return bpf_obj_get_info_by_fd(program_fd_, &info, &size) == 0 ? info.verified_insns : 0;
}

}  // namespace stockade::live
