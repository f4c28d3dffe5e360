#include "userspace/kernel/pins.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/kernel/probe_pins.h"
#include "userspace/kernel/programs.h"

namespace stockade::kernel {
namespace {

std::string AbiName() { return absl::StrCat("abi", kPinAbi); }

Status MakeDir(const std::string& path) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(errno, absl::StrCat("create ", path));
    return absl::OkStatus();
}

Status Pin(int fd, const std::string& path) {
    return NegErrnoStatus(bpf_obj_pin(fd, path.c_str()) ? -errno : 0, absl::StrCat("pin ", path));
}

Status PinSet(Programs& programs, const std::string& dir) {
    const std::string lent = absl::StrCat(dir, "/", programs.content_name());
    SK_RETURN_IF_ERROR(MakeDir(dir));
    SK_RETURN_IF_ERROR(MakeDir(lent));
    for (const auto& [name, fd] : programs.Lendable()) SK_RETURN_IF_ERROR(Pin(fd, absl::StrCat(lent, "/", name)));
    for (auto& [name, link] : programs.links()) {
        SK_RETURN_IF_ERROR(Pin(link.get(), absl::StrCat(dir, "/", name)));
    }
    return absl::OkStatus();
}

Status PinMaps(Programs& programs, const std::string& dir) {
    SK_RETURN_IF_ERROR(MakeDir(dir));
    bpf_map* map;
    bpf_object__for_each_map(map, programs.object()) {
        if (absl::StrContains(bpf_map__name(map), '.')) continue;
        SK_RETURN_IF_ERROR(Pin(bpf_map__fd(map), absl::StrCat(dir, "/", bpf_map__name(map))));
    }
    return absl::OkStatus();
}

}  // namespace

StatusOr<Pins> Pins::Open(const std::string& dir) {
    Pins pins;
    if (dir.empty()) return pins;
    SK_RETURN_IF_ERROR(MakeDir(dir));
    pins.dir_ = dir;
    uint64_t drawn = 0;
    if (getrandom(&drawn, sizeof(drawn), 0) != sizeof(drawn))
        return ErrnoStatus(errno, "draw a name for the pins");
    pins.agent_ = absl::StrCat(absl::Hex(drawn, absl::kZeroPad16));
    SK_ASSIGN_OR_RETURN(auto stale, FindStalePins(dir, kPinAbi));
    std::vector<StalePins> unpublished;
    for (const StalePins& entry : stale) {
        if (absl::StartsWith(entry.name, "new_")) {
            unpublished.push_back(entry);
        } else {
            return absl::FailedPreconditionError(
                absl::StrCat(dir, "/", entry.name, " is ", entry.reason,
                             "; end the agent of that build, then run: stockade doctor --clean"));
        }
    }
    SK_RETURN_IF_ERROR(RemoveStalePins(dir, unpublished));
    SK_ASSIGN_OR_RETURN(pins.lock_, Fd::Open(dir, O_RDONLY | O_DIRECTORY));
    if (flock(pins.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
        return absl::UnavailableError(absl::StrCat(dir, " is in use by another agent"));
    }
    return pins;
}

bool Pins::published() const {
    return enabled() && access(abi_dir().c_str(), F_OK) == 0;
}

std::string Pins::maps_dir() const { return absl::StrCat(abi_dir(), "/maps"); }

std::string Pins::set_name(const Programs& programs) const {
    return absl::StrCat("set_", programs.set_id(), "_", agent_);
}

std::string Pins::set_dir(const Programs& programs) const {
    return absl::StrCat(abi_dir(), "/", set_name(programs));
}

std::string Pins::abi_dir() const { return absl::StrCat(dir_, "/", AbiName()); }

StatusOr<std::vector<std::string>> Pins::SetNames() const {
    SK_ASSIGN_OR_RETURN(std::vector<std::string> names, PinDirectories(abi_dir()));
    std::erase_if(names, [](const std::string& name) { return !absl::StartsWith(name, "set_"); });
    return names;
}

StatusOr<std::vector<std::string>> Pins::Sets() const {
    if (!enabled()) return std::vector<std::string>();
    SK_ASSIGN_OR_RETURN(std::vector<std::string> sets, SetNames());
    for (std::string& set : sets) set = absl::StrCat(abi_dir(), "/", set);
    return sets;
}

Status Pins::PublishFirst(Programs& programs) {
    if (!enabled()) return absl::OkStatus();
    std::string staging = absl::StrCat(dir_, "/new_", agent_);
    SK_RETURN_IF_ERROR(MakeDir(staging));
    SK_RETURN_IF_ERROR(PinMaps(programs, absl::StrCat(staging, "/maps")));
    SK_RETURN_IF_ERROR(PinSet(programs, absl::StrCat(staging, "/", set_name(programs))));
    std::string target = abi_dir();
    if (rename(staging.c_str(), target.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("publish ", target));
    return absl::OkStatus();
}

Status Pins::PublishSet(Programs& programs) {
    if (!enabled()) return absl::OkStatus();
    std::string staging = absl::StrCat(dir_, "/new_", agent_);
    SK_RETURN_IF_ERROR(PinSet(programs, staging));
    std::string mine = set_dir(programs);
    if (rename(staging.c_str(), mine.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("publish ", mine));
    return absl::OkStatus();
}

Status Pins::RemoveOtherSets(const Programs& programs) {
    if (!enabled()) return absl::OkStatus();
    SK_ASSIGN_OR_RETURN(const std::vector<std::string> names, SetNames());
    for (const std::string& name : names) {
        if (name != set_name(programs)) SK_RETURN_IF_ERROR(RemovePins(abi_dir(), name));
    }
    return absl::OkStatus();
}

Status Pins::RemoveOwnSet(const Programs& programs) {
    if (!enabled()) return absl::OkStatus();
    return RemovePins(abi_dir(), set_name(programs));
}

Status Pins::PinLink(Programs& programs, const std::string& name, int link_fd) {
    if (!enabled()) return absl::OkStatus();
    return Pin(link_fd, absl::StrCat(set_dir(programs), "/", name));
}

Status Pins::Unpin(Programs& programs, const std::string& name) {
    if (!enabled()) return absl::OkStatus();
    std::string path = absl::StrCat(set_dir(programs), "/", name);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, absl::StrCat("unpin ", path));
    return absl::OkStatus();
}

}  // namespace stockade::kernel
