// All sandboxes that the agent knows, and their states.
//
//   SK_ASSIGN_OR_RETURN(Sandbox* sandbox, registry.Add(std::move(info)));
//   registry.Bind(*sandbox, slot, generation);         // from here on Lookup finds it
//   SK_RETURN_IF_ERROR(registry.Move(*sandbox, model::SandboxState::kStarting));
//   registry.Remove(sandbox->id());
//
// Threads: one, the agent's, except Lookup, which the thread that decodes records calls.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "bpf/wire/slot.h"
#include "userspace/base/status.h"
#include "userspace/model/sandbox.h"

namespace stockade::sandbox {

// Boot times of the steps; 0 = not yet.
struct Times {
    uint64_t created_ns = 0;
    uint64_t attested_ns = 0;
    uint64_t started_ns = 0;
    uint64_t condemned_ns = 0;
    uint64_t ended_ns = 0;
    uint64_t removed_ns = 0;
};

struct Sandbox {
    std::shared_ptr<const model::SandboxInfo> info;  // replaced, never changed
    model::SandboxState state = model::SandboxState::kRegistered;
    Times times;
    std::vector<std::string> argv;
    std::string mode;        // enforce | observe
    uint32_t owner_uid = 0;  // who asked for it
    uint32_t uid = 0;        // inside and outside; of this sandbox alone
    uint32_t slot = 0;       // 0 = not bound
    uint32_t generation = 0;
    uint32_t policy_index = 0;
    std::string cgroup;  // absolute path
    int shim_pid = 0;
    int init_pid = 0;
    bool kill_pending = false;
    std::vector<std::string> conditions;  // "Adopted", "Degraded/..."

    const std::string& id() const { return info->id.str(); }
};

class Registry {
  public:
    struct Options {
        uint32_t first_uid = 1'900'000'000;  // beyond what useradd, systemd and podman hand out
        uint32_t uid_count = 65536;
        size_t max_sandboxes = SK_MAX_SLOTS - 1;
    };
    explicit Registry(const Options& options) : options_(options) {}

    // Gives it a uid that no other live sandbox has. kResourceExhausted when the node is full,
    // kAlreadyExists for a known id. The pointer is valid until Remove.
    StatusOr<Sandbox*> Add(std::shared_ptr<const model::SandboxInfo> info);
    // Of a sandbox that an earlier agent started; keeps its uid.
    StatusOr<Sandbox*> Adopt(std::shared_ptr<const model::SandboxInfo> info, uint32_t uid);
    void Bind(Sandbox& sandbox, uint32_t slot, uint32_t generation);
    void ReplaceInfo(Sandbox& sandbox, std::shared_ptr<const model::SandboxInfo> info);
    // kFailedPrecondition for a step that the state machine does not have.
    Status Move(Sandbox& sandbox, model::SandboxState next);
    void Remove(const std::string& id);

    // Nullptr when unknown.
    Sandbox* Find(const std::string& id);
    Sandbox* FindSlot(uint32_t slot, uint32_t generation);
    // The one whose id is `text` or starts with it, with or without "sbx_". kNotFound, or
    // kInvalidArgument when several do.
    StatusOr<Sandbox*> FindByPrefix(const std::string& text);
    std::vector<Sandbox*> All();  // oldest first
    size_t size() const { return sandboxes_.size(); }

    // Any thread.
    std::shared_ptr<const model::SandboxInfo> Lookup(uint32_t slot, uint32_t generation) const;

  private:
    static uint64_t Key(uint32_t slot, uint32_t generation) { return (uint64_t{generation} << 32) | slot; }
    StatusOr<Sandbox*> Insert(std::shared_ptr<const model::SandboxInfo> info, uint32_t uid);

    const Options options_;
    std::map<std::string, std::unique_ptr<Sandbox>> sandboxes_;
    std::set<uint32_t> uids_;
    uint32_t next_uid_ = 0;     // offset; goes round, so that a uid is not used again at once
    mutable std::mutex mutex_;  // of slots_
    absl::flat_hash_map<uint64_t, std::shared_ptr<const model::SandboxInfo>> slots_;
    absl::flat_hash_map<uint64_t, std::string> ids_;
};

}  // namespace stockade::sandbox
