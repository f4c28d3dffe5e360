// The skeleton, opened, loaded and attached in the one order that neither loses a record nor
// judges without policy: open -> sizes, autoload, read-only data -> load -> fill maps -> attach.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/kernel/sensor.h"

struct bpf_link;
struct bpf_map;
struct bpf_object;
struct bpf_program;
struct guard_bpf;

namespace stockade::kernel {

struct LinkCloser {
    void operator()(bpf_link* link) const;
};
using Link = std::unique_ptr<bpf_link, LinkCloser>;

// Owns the loaded object and the links that are not pinned. Not thread-safe.
class Programs {
  public:
    struct Options {
        Backend backend = Backend::kSignal;
        sk_hash_keys keys{};
        bool classic = false;  // tracepoint programs of the kind that runs with preemption off
        // Directory of the pinned maps of an earlier agent; empty = make new ones.
        std::string reuse_maps_dir;
    };
    static StatusOr<std::unique_ptr<Programs>> Load(const Options& options);
    ~Programs();

    // Attaches everything that is attached always: all tracing and LSM programs but the system call
    // exit, which costs the whole machine. Partial success is undone.
    Status AttachAll();
    // The system call exit of the signal backend, by program name; without effect under lsm.
    StatusOr<std::vector<std::pair<std::string, Link>>> AttachCalls();
    // One cgroup program after the other.
    StatusOr<std::vector<Link>> AttachCgroup(int cgroup_fd);

    // Lower-case hexadecimal of the object's content: the name of this set of programs.
    const std::string& set_id() const { return set_id_; }
    std::vector<std::pair<std::string, Link>>& links() { return links_; }

    bpf_object* object() const;
    int MapFd(const char* name) const;      // borrowed; -1 when there is none
    uint32_t MapValueBytes(const char* name) const;
    int ProgramFd(const char* name) const;  // borrowed
    void SetPresentSlot(uint32_t slot);
    bpf_program* Program(const char* name) const;

  private:
    Programs() = default;
    StatusOr<Link> Attach(bpf_program* program, int cgroup_fd);

    guard_bpf* skeleton_ = nullptr;
    std::vector<std::pair<std::string, Link>> links_;  // program name, link
    std::string set_id_;
    Backend backend_ = Backend::kSignal;
};

}  // namespace stockade::kernel
