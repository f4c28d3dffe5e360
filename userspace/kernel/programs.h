// The skeleton, opened, loaded and attached in the one order that neither loses a record nor
// judges without policy: open -> sizes, autoload, read-only data -> load -> fill maps -> attach.
//
// An agent that comes back need not load what is the same to the last bit: its programs are pinned beside their links, and
// are kept. The verifier takes most of a second for the set.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/kernel/sensor.h"

struct bpf_map;
struct bpf_object;
struct bpf_program;
struct guard_bpf;

namespace stockade::kernel {

// Owns the programs, and the links that are not pinned. Not thread-safe.
class Programs {
  public:
    struct Options {
        Backend backend = Backend::kSignal;
        sk_hash_keys keys{};
        bool classic = false;  // tracepoint programs of the kind that runs with preemption off
        bool follows = false;  // programs may follow the kernel's functions (prog:fexit of the probe)
        // Directory of the pinned maps of an earlier agent; empty = make new ones.
        std::string reuse_maps_dir;
        // Of earlier sets on the same maps: one that has the same programs lends them, with their links.
        std::vector<std::string> earlier_sets;
    };
    static StatusOr<std::unique_ptr<Programs>> Load(const Options& options);
    ~Programs();

    // Attaches everything that is attached always: all tracing and LSM programs but the system call
    // exit, which costs the whole machine. Partial success is undone.
    Status AttachAll();
    // The system call exit of the signal backend, by program name; without effect under lsm.
    StatusOr<std::vector<std::pair<std::string, Fd>>> AttachCalls();
    // One cgroup program after the other. `pin`: the links are pinned as this name and a number.
    StatusOr<std::vector<Fd>> AttachCgroup(int cgroup_fd, const std::string& pin);

    // They are those of an earlier set, and so are the links that it had.
    bool kept() const { return !lenders_.empty(); }
    // All that a next agent needs to keep them, by the names of its pins; borrowed. Their directory is below that of the set.
    std::vector<std::pair<std::string, int>> Lendable() const;
    std::string content_name() const;

    // Lower-case hexadecimal of the object's content: the name of this set of programs.
    const std::string& set_id() const { return set_id_; }
    std::vector<std::pair<std::string, Fd>>& links() { return links_; }

    bpf_object* object() const;             // what is in it; not loaded where `kept`
    int MapFd(const char* name) const;      // borrowed; -1 when there is none
    uint32_t MapValueBytes(const char* name) const;
    int ProgramFd(const char* name) const;  // borrowed; -1 where it is none of this kernel and backend
    Status SetPresentSlot(uint32_t slot);
    bpf_program* Program(const char* name) const;

  private:
    Programs() = default;
    bool Keep(const Options& options);
    bool KeepFrom(const std::string& set_dir, const std::string& maps_dir);
    int Bss() const;
    StatusOr<Fd> Attach(const bpf_program* program, int cgroup_fd, const std::string& pin);

    guard_bpf* skeleton_ = nullptr;
    std::vector<std::pair<std::string, Fd>> links_;  // program name, link
    std::string set_id_;
    std::string content_;  // digest of all that makes them what they are
    // Of those that are kept, by name.
    std::map<std::string, Fd, std::less<>> kept_programs_, kept_maps_;
    std::vector<std::string> lenders_;  // directories of the sets that have them
    Backend backend_ = Backend::kSignal;
};

}  // namespace stockade::kernel
