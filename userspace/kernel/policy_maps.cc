#include "userspace/kernel/policy_maps.h"

#include <bpf/bpf.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/base/sha256.h"

namespace stockade::kernel {
namespace {

constexpr std::array<uint32_t, SK_POLICY_SIZES> kCells = {SK_POLICY_CELLS_SMALL, SK_POLICY_CELLS_MEDIUM, SK_POLICY_CELLS_LARGE};

// The smallest size that holds it; Acquire has checked that one does.
uint32_t SizeOf(size_t cells) {
    uint32_t size = 0;
    while (kCells[size] < cells) size++;
    return size;
}

// All values of a size are equally long: what the policy does not fill is zero.
StatusOr<Fd> MakeInner(std::span<const union sk_cell> cells, uint32_t size) {
    std::vector<union sk_cell> value(kCells[size]);
    std::memset(value.data(), 0, value.size() * sizeof(union sk_cell));
    std::memcpy(value.data(), cells.data(), cells.size_bytes());
    LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_RDONLY_PROG);
    Fd fd(bpf_map_create(BPF_MAP_TYPE_ARRAY, "sk_policy", sizeof(uint32_t), kCells[size] * SK_CELL_BYTES, 1, &options));
    if (!fd.ok()) return ErrnoStatus(errno, absl::StrCat("create a policy map of ", kCells[size], " cells"));
    const uint32_t key = 0;
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_update_elem(fd.get(), &key, value.data(), BPF_ANY), "fill a policy map"));
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_freeze(fd.get()), "freeze a policy map"));
    return fd;
}

}  // namespace

StatusOr<uint32_t> PolicyMaps::FreeIndex(uint32_t size) const {
    const uint32_t first = size * SK_MAX_POLICIES, end = first + SK_MAX_POLICIES;
    for (uint32_t index = first; index < end; index++) {
        if (!users_.contains(index)) return index;
    }
    for (auto it = users_.lower_bound(first); it != users_.end() && it->first < end; ++it) {
        if (it->second == 0) return it->first;
    }
    return absl::ResourceExhaustedError(absl::StrCat("all ", SK_MAX_POLICIES,
                                                     " places for policies of this size are in use: end sandboxes "
                                                     "(stockade ps, stockade kill), or let them share a policy"));
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
    const uint32_t size = SizeOf(cells.size());
    SK_ASSIGN_OR_RETURN(uint32_t index, FreeIndex(size));
    SK_ASSIGN_OR_RETURN(Fd inner, MakeInner(cells, size));
    const int fd = inner.get();
    const uint32_t place = index % SK_MAX_POLICIES;
    SK_RETURN_IF_ERROR(
        NegErrnoStatus(bpf_map_update_elem(outer_fds_[size], &place, &fd, BPF_ANY), absl::StrCat("publish policy ", index)));
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
