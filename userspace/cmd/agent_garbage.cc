// What ended sandboxes have left: looked for on a timer, when asked, and told as findings.
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/base/clock.h"
#include "userspace/base/log.h"
#include "userspace/cmd/agent.h"
#include "userspace/launch/native.h"

namespace stockade::cmd {
namespace {

// What a launcher that was killed has left is in nobody's way for so long.
constexpr uint64_t kGarbageNs = 10'000'000'000;
// Of names that were told of; they are few, or something is very wrong and said often enough.
constexpr size_t kMaxTold = 1024;

}  // namespace

launch::Leftovers Agent::CollectGarbage(bool dry_run) {
    const auto known = [this](const std::string& id) { return FindRun(id) != nullptr || (spare_ != nullptr && spare_->id.str() == id); };
    launch::Leftovers left = launch::CleanLeftovers(options_.home, {.dry_run = dry_run, .is_known = known});
    const StatusOr<sandbox::StateFiles::Loaded> loaded = files_->Load();
    if (loaded.ok()) {
        for (const sandbox::StoredSandbox& stored : loaded->sandboxes) {
            if (known(stored.id())) continue;
            left.found.push_back(absl::StrCat("state ", stored.id()));
            const Status removed = dry_run ? absl::OkStatus() : files_->Remove(stored.id());
            if (!removed.ok()) left.failed.push_back(absl::StrCat("state ", stored.id(), ": ", removed.message()));
        }
    }
    TellGarbage(left);
    left_over_ = dry_run ? left.found.size() : left.failed.size();
    return left;
}

// Once for each: what cannot be removed is found again and again.
void Agent::TellGarbage(const launch::Leftovers& left) {
    for (const std::string& what : left.found) {
        if (garbage_told_.size() >= kMaxTold) garbage_told_.clear();
        if (!garbage_told_.insert(what).second) continue;
        ++counts_.leftovers_found;
        LogWarning("left of an ended sandbox: ", what);
        v1::Event event;
        event.set_kind("finding");
        event.mutable_finding()->set_rule("leftover_sandbox");
        event.mutable_finding()->set_title("Something is left of an ended sandbox");
        event.mutable_finding()->set_severity("medium");
        event.mutable_finding()->set_detail(what);
        hub_->path().Publish(std::move(event));
    }
    for (const std::string& failed : left.failed) LogWarning("clean up: ", failed);
}

void Agent::WatchGarbage() {
    const uint64_t now = BootNow();
    // Shims of sandboxes that are being taken over may not have said so yet.
    if (adopted_ns_ != 0 || now - garbage_ns_ < kGarbageNs) return;
    garbage_ns_ = now;
    (void)CollectGarbage(false);  // what failed is told by it, and is tried again
}

void Agent::AnswerGc(int fd, bool dry_run) {
    const launch::Leftovers left = CollectGarbage(dry_run);
    api::Message message;
    api::GcReply& reply = *message.mutable_gc_reply();
    for (const std::string& what : left.found) reply.add_found(what);
    for (const std::string& what : left.failed) reply.add_failed(what);
    Send(fd, message);
}

}  // namespace stockade::cmd
