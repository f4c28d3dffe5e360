// The sandbox made ahead: namespaces, root and cgroup stand before a run asks for them.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#include "absl/algorithm/container.h"
#include "userspace/base/log.h"
#include "userspace/cmd/agent.h"
#include "userspace/launch/native.h"

namespace stockade::cmd {
namespace {

// From the agent's last word to the end of the spare's shim: it kills one task and removes one cgroup.
constexpr int kSpareEndMs = 5000;

}  // namespace

// After each start, so that an agent that starts nothing keeps nothing.
void Agent::MakeSpare() {
    if (spare_ != nullptr || !options_.config.made_ahead) return;
    auto spare = std::make_unique<Spare>();
    spare->id = model::SandboxId::New();
    (void)HostChanged();  // what was before is in it
    spare->host = launch::HostView();
    api::StartShim order;
    SetPlace(spare->id.str(), &order);
    auto pair = api::Channel::Pair();
    Status status = pair.status();
    if (status.ok()) {
        spare->control = std::move(pair->first);
        status = options_.helper->Start(order, {{api::FD_CONTROL, pair->second.fd()}});
    }
    if (status.ok()) status = loop_->Watch(spare->control.fd(), EPOLLIN, [this](uint32_t) { OnSpare(); });
    if (!status.ok()) return LogWarning("no sandbox is made ahead: ", status.message());
    spare_ = std::move(spare);
}

void Agent::OnSpare() {
    while (spare_ != nullptr) {
        const StatusOr<std::optional<api::Packet>> packet = spare_->control.TryReceive();
        if (!packet.ok()) {
            DropSpare();
            // A shim that was killed has left its cgroup.
            const launch::Leftovers left = launch::CleanLeftovers(options_.home);
            for (const std::string& failed : left.failed) LogWarning("clean up: ", failed);
            return;
        }
        if (!packet->has_value()) return;
        const api::Message& message = (*packet)->message;
        if (message.has_shim_started()) {
            spare_->pid = message.shim_started().pid();
            spare_->ready = true;
        } else {
            LogWarning("no sandbox is made ahead: ", message.shim_failed().error());
            return DropSpare();
        }
    }
}

// The spare, when it has all that the request wants: the host's root as it is now, no way out, the usual sizes.
std::unique_ptr<Agent::Spare> Agent::TakeSpare(const api::Run& request, const api::Packet& packet,
                                               bool egress) {
    if (spare_ == nullptr || !spare_->ready || egress || request.out_bytes() != 0) return nullptr;
    if (absl::c_linear_search(packet.message.fds(), static_cast<int>(api::FD_ROOTFS))) return nullptr;
    // Its cgroup has the agent's own limits.
    if (request.contract().has_limits()) return nullptr;
    if (HostChanged() || spare_->host != launch::HostView()) {
        DropSpare();
        return nullptr;
    }
    loop_->Forget(spare_->control.fd());
    return std::move(spare_);
}

// Mounts came or went since this was last asked. A host that does not say keeps no spare.
bool Agent::HostChanged() {
    if (!mountinfo_.ok()) {
        StatusOr<Fd> opened = Fd::Open("/proc/self/mountinfo", O_RDONLY);
        if (!opened.ok()) return true;
        mountinfo_ = *std::move(opened);
    }
    pollfd mounts = {.fd = mountinfo_.get(), .events = POLLPRI, .revents = 0};
    return poll(&mounts, 1, 0) != 0;
}

void Agent::DropSpare() {
    loop_->Forget(spare_->control.fd());
    spare_.reset();
}

// At the agent's end: its shim closes the channel when nothing is left.
void Agent::EndSpare() {
    if (spare_ == nullptr) return;
    loop_->Forget(spare_->control.fd());
    api::Message message;
    message.mutable_shim_abort();
    if (spare_->control.Send(message).ok()) {
        while (spare_->control.Receive(kSpareEndMs).ok()) {
        }
    }
    spare_.reset();
}

}  // namespace stockade::cmd
