#include "userspace/kernel/slots.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bpf/wire/slot_call.h"
#include "userspace/base/errno.h"

namespace stockade::kernel {
namespace {

struct CgroupPlace {
    uint64_t id = 0;
    uint32_t level = 0;
};

// A cgroup's id is its inode number; its level is the number of steps up to the root of the mount.
StatusOr<CgroupPlace> FindCgroup(int cgroup_fd) {
    struct stat here {};
    if (fstat(cgroup_fd, &here) != 0) return ErrnoStatus(errno, "look at the cgroup");
    CgroupPlace place{.id = here.st_ino};
    SK_ASSIGN_OR_RETURN(Fd dir, Fd::Dup(cgroup_fd));
    for (; place.level <= SK_MAX_CGROUP_LEVEL; place.level++) {
        SK_ASSIGN_OR_RETURN(Fd up, Fd::OpenAt(dir, "..", O_PATH | O_DIRECTORY));
        struct stat above {};
        if (fstat(up.get(), &above) != 0) return ErrnoStatus(errno, "look at the cgroup's parent");
        if (above.st_dev != here.st_dev || above.st_ino == here.st_ino) return place;
        here = above;
        dir = std::move(up);
    }
    return absl::OutOfRangeError(absl::StrCat("the cgroup is deeper than ", SK_MAX_CGROUP_LEVEL, " levels"));
}

// Runs an iterator program to its end and returns what it wrote.
StatusOr<std::string> RunIterator(const Programs& programs, const char* name, int pidfd) {
    union bpf_iter_link_info info {};
    info.task.pid_fd = static_cast<uint32_t>(pidfd);
    LIBBPF_OPTS(bpf_link_create_opts, options);
    if (pidfd >= 0) {
        options.iter_info = &info;
        options.iter_info_len = sizeof(info);
    }
    Fd link(bpf_link_create(programs.ProgramFd(name), 0, BPF_TRACE_ITER, &options));
    if (!link.ok()) return ErrnoStatus(errno, absl::StrCat("attach ", name));
    Fd fd(bpf_iter_create(link.get()));
    if (!fd.ok()) return ErrnoStatus(errno, absl::StrCat("run ", name));
    return ReadAll(fd.get(), 1 << 24);
}

}  // namespace

StatusOr<Slots> Slots::Create(Programs* programs) {
    Slots slots(programs);
    slots.generations_.assign(SK_MAX_SLOTS, 0);
    slots.used_.assign(SK_MAX_SLOTS, false);
    slots.level_users_.assign(SK_MAX_CGROUP_LEVEL + 1, 0);
    for (uint32_t i = 1; i < SK_MAX_SLOTS; i++) {
        sk_slot slot{};
        if (bpf_map_lookup_elem(programs->MapFd("slots"), &i, &slot) != 0) return ErrnoStatus(errno, "read the slots");
        slots.generations_[i] = slot.generation;
        if (slot.state == SK_SLOT_FREE) continue;
        slots.used_[i] = true;
        slots.level_users_[std::min<uint32_t>(slot.cgroup_level, SK_MAX_CGROUP_LEVEL)]++;
        slots.live_++;
    }
    SK_RETURN_IF_ERROR(slots.WriteConfig());
    return slots;
}

Status Slots::WriteConfig() {
    uint32_t zero = 0;
    sk_config config{};
    int fd = programs_->MapFd("config");
    if (bpf_map_lookup_elem(fd, &zero, &config) != 0) return ErrnoStatus(errno, "read the configuration map");
    config.levels = 0;
    unsigned shift = 0;
    for (uint32_t level = 1; level <= SK_MAX_CGROUP_LEVEL; level++) {
        if (level_users_[level] == 0) continue;
        config.levels |= uint64_t{level} << shift;
        shift += 8;
    }
    config.live_slots = live_;
    config.agent_tgid = static_cast<uint32_t>(getpid());
    config.abi = SK_CONFIG_ABI;
    return NegErrnoStatus(bpf_map_update_elem(fd, &zero, &config, BPF_ANY), "write the configuration map");
}

StatusOr<uint64_t> Slots::RootDentry(int pidfd) {
    SK_ASSIGN_OR_RETURN(std::string bytes, RunIterator(*programs_, "task_root", pidfd));
    uint64_t address = 0;
    if (bytes.size() < sizeof(address)) return absl::NotFoundError("the first task of the sandbox is gone");
    std::memcpy(&address, bytes.data(), sizeof(address));
    if (address == 0) return absl::NotFoundError("the first task of the sandbox has no root directory");
    return address;
}

StatusOr<SlotRef> Slots::Bind(const Sensor::Binding& binding) {
    SK_ASSIGN_OR_RETURN(CgroupPlace place, FindCgroup(binding.cgroup_fd));
    if (place.level == 0) return absl::InvalidArgumentError("the root cgroup cannot be a sandbox");
    auto in_use = std::count_if(level_users_.begin(), level_users_.end(), [](int users) { return users > 0; });
    if (level_users_[place.level] == 0 && in_use >= SK_MAX_LEVELS) {
        return absl::ResourceExhaustedError(
            absl::StrCat("sandboxes at more than ", SK_MAX_LEVELS, " different levels of the cgroup tree"));
    }
    uint32_t owner = 0;
    if (bpf_map_lookup_elem(programs_->MapFd("cgroups"), &place.id, &owner) == 0) {
        return absl::AlreadyExistsError(absl::StrCat("the cgroup is bound to slot ", owner));
    }
    SK_ASSIGN_OR_RETURN(uint64_t root, RootDentry(binding.root_pidfd));
    uint32_t number = 0;
    for (uint32_t i = 0; i < SK_MAX_SLOTS - 1 && number == 0; i++) {
        if (!used_[next_]) number = next_;
        next_ = next_ + 1 < SK_MAX_SLOTS ? next_ + 1 : 1;
    }
    if (number == 0) {
        return absl::ResourceExhaustedError(absl::StrCat("all ", SK_MAX_SLOTS - 1,
                                                         " slots for sandboxes are in use: end one first "
                                                         "(stockade ps, stockade kill)"));
    }
    uint32_t generation = (generations_[number] + 1) & SK_GENERATION_MASK;
    if (generation == 0) generation = 1;
    sk_slot slot{.cgroup_id = place.id,
                 .root_dentry = root,
                 .generation = generation,
                 .state = SK_SLOT_LIVE,
                 .policy_index = binding.policy_index,
                 .cgroup_level = place.level,
                 .flags = binding.closed ? SK_SLOT_CLOSED : 0,
                 .pad = 0};
    sk_state state{};
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_update_elem(programs_->MapFd("states"), &number, &state, BPF_ANY),
                                      "clear the slot's state"));
    SK_RETURN_IF_ERROR(
        NegErrnoStatus(bpf_map_update_elem(programs_->MapFd("slots"), &number, &slot, BPF_ANY), "write the slot"));
    generations_[number] = generation;
    used_[number] = true;
    level_users_[place.level]++;
    live_++;
    const SlotRef ref{number, generation};
    const int rc = bpf_map_update_elem(programs_->MapFd("cgroups"), &place.id, &number, BPF_ANY);
    // As many entries as slots: it can be full only of cgroups that no slot has.
    Status status = rc == -E2BIG ? absl::ResourceExhaustedError(
                                       "bind the cgroup: the kernel's map of cgroups is full, though sandboxes are not as "
                                       "many: stop the agent, then run: stockade doctor --clean")
                                 : NegErrnoStatus(rc, "bind the cgroup");
    if (status.ok()) status = WriteConfig();
    if (status.ok()) return ref;
    // A slot that is live and that nobody holds would be adopted as a sandbox by the next agent.
    Status undone = Free(ref);
    if (undone.ok()) return status;
    return Status(status.code(), absl::StrCat(status.message(), "; and then: ", undone.message()));
}

Status Slots::Call(const SlotRef& ref, uint32_t op, uint32_t argument) {
    sk_slot_call call{.slot = ref.slot, .generation = ref.generation, .op = op, .argument = argument};
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &call, .ctx_size_in = sizeof(call));
    int rc = bpf_prog_test_run_opts(programs_->ProgramFd("slot_call"), &options);
    SK_RETURN_IF_ERROR(NegErrnoStatus(rc, "call slot_call"));
    if (options.retval != 0) return absl::NotFoundError(absl::StrCat("slot ", ref.slot, " is another sandbox's by now"));
    return absl::OkStatus();
}

Status Slots::Label(const SlotRef& ref, int pidfd) {
    const int fd = programs_->MapFd("tasks");
    std::vector<char> value(programs_->MapValueBytes("tasks"), 0);
    const sk_label label{.slot = ref.slot, .generation = ref.generation};
    std::memcpy(value.data(), &label, sizeof(label));
    const int rc = bpf_map_update_elem(fd, &pidfd, value.data(), BPF_NOEXIST);
    if (rc != -EEXIST) {
        SK_RETURN_IF_ERROR(NegErrnoStatus(rc, "label the first task"));
        return Call(ref, SK_SLOT_ADD_TASKS, 1);
    }
    // A call that it made since the binding has had it labelled and counted, by its cgroup: as entered,
    // where anybody may. The store is a new value, so that a program at work keeps its own.
    std::vector<char> present(value.size(), 0);
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_lookup_elem(fd, &pidfd, present.data()), "read the first task's label"));
    sk_label theirs;
    std::memcpy(&theirs, present.data(), sizeof(theirs));
    // 0: a program is about to; it counts the task, and its label goes with the value that is replaced.
    const bool unset = theirs.slot == 0 && theirs.generation == 0;
    if (!unset && (theirs.slot != ref.slot || (theirs.generation & SK_GENERATION_MASK) != ref.generation)) {
        return absl::AlreadyExistsError(absl::StrCat("the first task is of slot ", theirs.slot));
    }
    return NegErrnoStatus(bpf_map_update_elem(fd, &pidfd, value.data(), BPF_EXIST), "label the first task");
}

StatusOr<int> Slots::LabelPresent(const SlotRef& ref) {
    SK_RETURN_IF_ERROR(programs_->SetPresentSlot(ref.slot));
    SK_ASSIGN_OR_RETURN(std::string bytes, RunIterator(*programs_, "label_present", -1));
    return static_cast<int>(bytes.size() / sizeof(uint32_t));
}

StatusOr<sk_slot> Slots::ReadSlot(const SlotRef& ref) {
    sk_slot slot{};
    if (bpf_map_lookup_elem(programs_->MapFd("slots"), &ref.slot, &slot) != 0) return ErrnoStatus(errno, "read the slot");
    if (slot.generation != ref.generation || slot.state == SK_SLOT_FREE) {
        return absl::NotFoundError(absl::StrCat("slot ", ref.slot, " is another sandbox's by now"));
    }
    return slot;
}

Status Slots::SwapPolicy(const SlotRef& ref, uint32_t policy_index) {
    SK_ASSIGN_OR_RETURN(sk_slot slot, ReadSlot(ref));
    slot.policy_index = policy_index;
    // All other words are written as they are: a verdict sees the old index or the new one.
    return NegErrnoStatus(bpf_map_update_elem(programs_->MapFd("slots"), &ref.slot, &slot, BPF_EXIST),
                          "swap the policy");
}

Status Slots::Condemn(const SlotRef& ref, uint32_t code) { return Call(ref, SK_SLOT_CONDEMN, code); }

StatusOr<sk_state> Slots::ReadState(const SlotRef& ref) {
    SK_RETURN_IF_ERROR(ReadSlot(ref).status());
    sk_state state{};
    if (bpf_map_lookup_elem(programs_->MapFd("states"), &ref.slot, &state) != 0) {
        return ErrnoStatus(errno, "read the slot's state");
    }
    return state;
}

Status Slots::Free(const SlotRef& ref) {
    SK_ASSIGN_OR_RETURN(sk_slot slot, ReadSlot(ref));
    if (bpf_map_delete_elem(programs_->MapFd("cgroups"), &slot.cgroup_id) != 0 && errno != ENOENT) {
        return ErrnoStatus(errno, "unbind the cgroup");
    }
    level_users_[std::min<uint32_t>(slot.cgroup_level, SK_MAX_CGROUP_LEVEL)]--;
    slot = sk_slot{.cgroup_id = 0,
                   .root_dentry = 0,
                   .generation = ref.generation,
                   .state = SK_SLOT_FREE,
                   .policy_index = SK_NO_POLICY,
                   .cgroup_level = 0,
                   .flags = 0,
                   .pad = 0};
    SK_RETURN_IF_ERROR(
        NegErrnoStatus(bpf_map_update_elem(programs_->MapFd("slots"), &ref.slot, &slot, BPF_EXIST), "free the slot"));
    used_[ref.slot] = false;
    live_--;
    return WriteConfig();
}

std::vector<Sensor::LiveSlot> Slots::Live() {
    std::vector<Sensor::LiveSlot> live;
    for (uint32_t i = 1; i < SK_MAX_SLOTS; i++) {
        if (!used_[i]) continue;
        SlotRef ref{i, generations_[i]};
        auto slot = ReadSlot(ref);
        auto state = ReadState(ref);
        if (slot.ok() && state.ok()) live.push_back({ref, *slot, *state});
    }
    return live;
}

}  // namespace stockade::kernel
