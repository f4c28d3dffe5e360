// The kernel side, attached and detached at will: both sides of a figure are taken in turns within one run, and loading the programs
// anew for each turn would take seconds. The agent's own way is userspace/kernel/sensor.cc, of the same parts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/kernel/policy_maps.h"
#include "userspace/kernel/programs.h"
#include "userspace/kernel/ring_reader.h"
#include "userspace/kernel/slots.h"
#include "userspace/policy/compile.h"

struct bench_floor;

namespace stockade::bench {

enum class Attached {
    kNothing,
    kFloor,     // an empty program at the end of system calls; nothing under lsm, which has no program there
    kPrograms,  // all that the agent attaches while a sandbox lives
};

class Machine {
  public:
    // `network_cgroup`: path of the cgroup that carries the network programs.
    static StatusOr<std::unique_ptr<Machine>> Create(kernel::Backend backend,
                                                     const std::string& network_cgroup);
    ~Machine();

    kernel::Backend backend() const { return backend_; }
    Status Attach(Attached what);
    // With or without the program that judges DNS, of kPrograms, which is attached.
    Status AttachDns(bool attached);

    struct Published {
        uint32_t index = 0;
        policy::CompiledPolicy compiled;
    };
    // `text`: a document whose policy is named "bench".
    StatusOr<Published> Publish(const std::string& text);
    StatusOr<kernel::SlotRef> Bind(const std::string& cgroup, int root_pidfd, uint32_t policy_index);

    const sk_hash_keys& keys() const { return keys_; }
    kernel::Slots& slots() { return *slots_; }
    kernel::RingReader& rings() { return *rings_; }
    kernel::Programs& programs() { return *programs_; }
    // Sum over CPUs of an enum sk_error_site.
    StatusOr<uint64_t> ReadError(uint32_t site);

  private:
    Machine() = default;
    Status Fill();
    Status Detach(uint32_t program_id);

    // Destroyed in reverse: what borrows maps before the programs.
    kernel::Backend backend_ = kernel::Backend::kSignal;
    sk_hash_keys keys_{};
    Fd network_;
    bench_floor* floor_ = nullptr;
    std::unique_ptr<kernel::Programs> programs_;
    Fd floor_link_;
    std::vector<std::pair<std::string, Fd>> calls_;
    std::vector<Fd> cgroup_links_;
    Fd dns_link_;
    std::unique_ptr<kernel::PolicyMaps> policies_;
    std::unique_ptr<kernel::Slots> slots_;
    std::unique_ptr<kernel::RingReader> rings_;
};

}  // namespace stockade::bench
