#include "userspace/sandbox/registry.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"

namespace stockade::sandbox {
namespace {

using model::SandboxState;

// Forward only, and a condemned one does not run again. Any state can end in kEmpty: a start
// that fails, a shim that is killed.
bool IsStep(SandboxState from, SandboxState to) {
    switch (to) {
        case SandboxState::kRegistered:
            return false;
        case SandboxState::kStarting:
            return from == SandboxState::kRegistered;
        case SandboxState::kRunning:
            return from == SandboxState::kStarting;
        case SandboxState::kCondemned:
            return from == SandboxState::kStarting || from == SandboxState::kRunning;
        case SandboxState::kEmpty:
            return from < SandboxState::kEmpty;
        case SandboxState::kDestroyed:
            return from == SandboxState::kEmpty;
    }
    return false;
}

}  // namespace

StatusOr<Sandbox*> Registry::Insert(std::shared_ptr<const model::SandboxInfo> info, uint32_t uid) {
    if (sandboxes_.size() >= options_.max_sandboxes) {
        return absl::ResourceExhaustedError(
            absl::StrCat("this node runs ", sandboxes_.size(),
                         " sandboxes, its limit: end one first (stockade ps, stockade kill)"));
    }
    auto sandbox = std::make_unique<Sandbox>();
    const std::string id = info->id.str();
    sandbox->info = std::move(info);
    sandbox->uid = uid;
    sandbox->times.created_ns = BootNow();
    const auto [it, fresh] = sandboxes_.emplace(id, std::move(sandbox));
    if (!fresh) return absl::AlreadyExistsError(absl::StrCat("sandbox ", id, " exists"));
    uids_.insert(uid);
    return it->second.get();
}

StatusOr<Sandbox*> Registry::Add(std::shared_ptr<const model::SandboxInfo> info) {
    for (uint32_t tried = 0; tried < options_.uid_count; ++tried) {
        const uint32_t uid = options_.first_uid + next_uid_;
        next_uid_ = (next_uid_ + 1) % options_.uid_count;
        if (!uids_.contains(uid)) return Insert(std::move(info), uid);
    }
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", options_.uid_count, " user ids of uid_range are in use"));
}

StatusOr<Sandbox*> Registry::Adopt(std::shared_ptr<const model::SandboxInfo> info, uint32_t uid) {
    return Insert(std::move(info), uid);
}

void Registry::Bind(Sandbox& sandbox, uint32_t slot, uint32_t generation) {
    sandbox.slot = slot;
    sandbox.generation = generation;
    ids_[Key(slot, generation)] = sandbox.id();
    std::lock_guard lock(mutex_);
    slots_[Key(slot, generation)] = sandbox.info;
}

void Registry::ReplaceInfo(Sandbox& sandbox, std::shared_ptr<const model::SandboxInfo> info) {
    sandbox.info = std::move(info);
    if (sandbox.slot == 0) return;
    std::lock_guard lock(mutex_);
    slots_[Key(sandbox.slot, sandbox.generation)] = sandbox.info;
}

Status Registry::Move(Sandbox& sandbox, SandboxState next) {
    if (!IsStep(sandbox.state, next)) {
        return absl::FailedPreconditionError(absl::StrCat("sandbox ", sandbox.id(), " is ",
                                                          model::ToString(sandbox.state),
                                                          " and cannot become ", model::ToString(next)));
    }
    sandbox.state = next;
    return absl::OkStatus();
}

void Registry::Remove(const std::string& id) {
    const auto it = sandboxes_.find(id);
    if (it == sandboxes_.end()) return;
    const Sandbox& sandbox = *it->second;
    if (sandbox.slot != 0) {
        const uint64_t key = Key(sandbox.slot, sandbox.generation);
        ids_.erase(key);
        std::lock_guard lock(mutex_);
        slots_.erase(key);
    }
    uids_.erase(sandbox.uid);
    sandboxes_.erase(it);
}

Sandbox* Registry::Find(const std::string& id) {
    const auto it = sandboxes_.find(id);
    return it == sandboxes_.end() ? nullptr : it->second.get();
}

Sandbox* Registry::FindSlot(uint32_t slot, uint32_t generation) {
    const auto it = ids_.find(Key(slot, generation));
    return it == ids_.end() ? nullptr : Find(it->second);
}

StatusOr<Sandbox*> Registry::FindByPrefix(const std::string& text) {
    if (Sandbox* exact = Find(text)) return exact;
    if (text.empty()) return absl::InvalidArgumentError("a sandbox id is needed: see stockade ps");
    const bool begins = absl::StartsWith(text, "sbx_") || absl::StartsWith("sbx_", text);
    const std::string prefix = begins ? text : absl::StrCat("sbx_", text);
    Sandbox* found = nullptr;
    for (auto it = sandboxes_.lower_bound(prefix);
         it != sandboxes_.end() && absl::StartsWith(it->first, prefix); ++it) {
        if (found != nullptr) {
            return absl::InvalidArgumentError(
                absl::StrCat("several sandboxes start with ", text, ": give more of the id"));
        }
        found = it->second.get();
    }
    if (found == nullptr) {
        return absl::NotFoundError(absl::StrCat("no sandbox ", text, ": see stockade ps"));
    }
    return found;
}

std::vector<Sandbox*> Registry::All() {
    std::vector<Sandbox*> all;
    all.reserve(sandboxes_.size());
    for (const auto& [id, sandbox] : sandboxes_) all.push_back(sandbox.get());
    return all;
}

std::shared_ptr<const model::SandboxInfo> Registry::Lookup(uint32_t slot, uint32_t generation) const {
    std::lock_guard lock(mutex_);
    const auto it = slots_.find(Key(slot, generation & SK_GENERATION_MASK));
    return it == slots_.end() ? nullptr : it->second;
}

}  // namespace stockade::sandbox
