// Where maps and links stand on the bpffs, so that they outlive the agent.
//
//   <dir>/new_<id>/...           being built; nobody uses it, removed at start
//   <dir>/abi<N>/maps/<map>      published by one rename of new_<id>
//   <dir>/abi<N>/set_<id>_<agent>/<link>
//                                links of one set of programs; two sets overlap in a take-over
//   .../programs_<content>/<program>
//                                the programs of that set, which the next agent keeps where it would load the same
//
// <id> is the programs' content, <agent> drawn by each agent: its pid would come again in a container.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::kernel {

class Programs;

// Grows when a map's layout or meaning changes: pins of another abi are refused.
constexpr unsigned kPinAbi = 4;
// Digest of the layout that this abi stands for; layout_abi_test compares and says what to do.
constexpr char kPinLayout[] = "4053000e2e66afc8";

class Pins {
  public:
    // `dir` empty: every call succeeds and does nothing. Creates the directory, takes the lock of
    // the directory for its own life time (a second agent gets kUnavailable), refuses pins of
    // another abi (kFailedPrecondition, with the cure) and removes unpublished ones.
    static StatusOr<Pins> Open(const std::string& dir);

    bool enabled() const { return !dir_.empty(); }
    // Maps of an earlier agent stand there.
    bool published() const;
    std::string maps_dir() const;
    // Directories of all sets that are published.
    StatusOr<std::vector<std::string>> Sets() const;

    // Pins the maps, programs and links of a first agent and publishes them by one rename.
    Status PublishFirst(Programs& programs);
    // Pins programs and links of this set beside those of the earlier one and publishes them by one rename.
    Status PublishSet(Programs& programs);
    // Removes the pins of all sets but this one, which detaches their programs.
    Status RemoveOtherSets(const Programs& programs);
    Status RemoveOwnSet(const Programs& programs);

    // A link that comes and goes while the set stands.
    Status PinLink(Programs& programs, const std::string& name, int link_fd);
    Status Unpin(Programs& programs, const std::string& name);

  private:
    std::string abi_dir() const;
    StatusOr<std::vector<std::string>> SetNames() const;
    std::string set_name(const Programs& programs) const;
    std::string set_dir(const Programs& programs) const;

    std::string dir_;
    std::string agent_;  // 16 hexadecimal digits
    Fd lock_;
};

}  // namespace stockade::kernel
