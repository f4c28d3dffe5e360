#include "userspace/kernel/policy_maps.h"

#include <bpf/bpf.h>

#include "absl/strings/str_cat.h"
#include "bpf/wire/slot.h"
#include "userspace/base/errno.h"
#include "userspace/base/sha256.h"

namespace stockade::kernel {
namespace {

StatusOr<Fd> MakeInner(std::span<const union sk_cell> cells) {
    LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_INNER_MAP | BPF_F_RDONLY_PROG);
    uint32_t count = static_cast<uint32_t>(cells.size());
    Fd fd(bpf_map_create(BPF_MAP_TYPE_ARRAY, "sk_policy", sizeof(uint32_t), SK_CELL_BYTES, count, &options));
    if (!fd.ok()) return ErrnoStatus(errno, absl::StrCat("create a policy map of ", count, " cells"));
    std::vector<uint32_t> keys(count);
    for (uint32_t i = 0; i < count; i++) keys[i] = i;
    LIBBPF_OPTS(bpf_map_batch_opts, batch);
    int rc = bpf_map_update_batch(fd.get(), keys.data(), cells.data(), &count, &batch);
    SK_RETURN_IF_ERROR(NegErrnoStatus(rc, "fill a policy map"));
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_freeze(fd.get()), "freeze a policy map"));
    return fd;
}

}  // namespace

StatusOr<uint32_t> PolicyMaps::FreeIndex() const {
    for (uint32_t index = 0; index < SK_MAX_POLICIES; index++) {
        if (!users_.contains(index)) return index;
    }
    for (const auto& [index, users] : users_) {
        if (users == 0) return index;
    }
    return absl::ResourceExhaustedError(absl::StrCat("all ", SK_MAX_POLICIES, " policy indices are in use"));
}

StatusOr<uint32_t> PolicyMaps::Acquire(std::span<const union sk_cell> cells) {
    if (cells.size() < 2 || cells.size() > SK_POLICY_MAX_CELLS || cells[0].head.magic != SK_POLICY_MAGIC ||
        cells[0].head.abi != SK_POLICY_ABI) {
        return absl::InvalidArgumentError("not a compiled policy");
    }
    std::string content =
        Sha256Hex({reinterpret_cast<const char*>(cells.data()), cells.size() * sizeof(union sk_cell)});
    if (auto known = index_of_.find(content); known != index_of_.end()) {
        users_[known->second]++;
        return known->second;
    }
    SK_ASSIGN_OR_RETURN(uint32_t index, FreeIndex());
    SK_ASSIGN_OR_RETURN(Fd inner, MakeInner(cells));
    int fd = inner.get();
    SK_RETURN_IF_ERROR(
        NegErrnoStatus(bpf_map_update_elem(outer_fd_, &index, &fd, BPF_ANY), absl::StrCat("publish policy ", index)));
    std::erase_if(index_of_, [index](const auto& entry) { return entry.second == index; });
    index_of_[content] = index;
    users_[index] = 1;
    return index;
}

Status PolicyMaps::Release(uint32_t index) {
    auto users = users_.find(index);
    if (users == users_.end() || users->second == 0) {
        return absl::NotFoundError(absl::StrCat("policy index ", index, " has no user"));
    }
    users->second--;
    return absl::OkStatus();
}

}  // namespace stockade::kernel
