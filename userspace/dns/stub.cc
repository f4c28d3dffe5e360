#include "userspace/dns/stub.h"

#include <pthread.h>

#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stockade::dns {
namespace {

Status CheckClient(const StubClient& client) {
    if (client.upstreams.empty()) return absl::InvalidArgumentError("no upstream resolver");
    for (const UpstreamAddress& upstream : client.upstreams) {
        if ((upstream.address.family != 4 && upstream.address.family != 6) || upstream.port == 0)
            return absl::InvalidArgumentError("an upstream resolver without address or port");
    }
    if (!client.judge || !client.answered) return absl::InvalidArgumentError("a function is missing");
    return absl::OkStatus();
}

}  // namespace

Stub::Stub(Options options, std::unique_ptr<StubLoop> loop)
    : options_(options),
      loop_(std::move(loop)),
      context_{.loop = *loop_, .options = options_, .counts = counts_} {}

StatusOr<std::unique_ptr<Stub>> Stub::Start(Options options) {
    SK_ASSIGN_OR_RETURN(auto loop, StubLoop::Create());
    std::unique_ptr<Stub> stub(new Stub(options, std::move(loop)));
    // Signals are the agent's main thread's.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    stub->thread_ = std::thread([loop = stub->loop_.get()] { loop->Run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    (void)pthread_setname_np(stub->thread_.native_handle(), "dns-stub");  // for people only
    return stub;
}

Stub::~Stub() {
    loop_->Stop();
    thread_.join();
}

Status Stub::Add(uint32_t key, Fd udp, Fd tcp_listener, Client client) {
    SK_RETURN_IF_ERROR(CheckClient(client));
    SK_RETURN_IF_ERROR(TakeStubSocket(udp, SOCK_DGRAM, false));
    SK_RETURN_IF_ERROR(TakeStubSocket(tcp_listener, SOCK_STREAM, true));
    Status status;
    loop_->Call([&] {
        if (services_.contains(key)) {
            status = absl::AlreadyExistsError(absl::StrCat("the stub serves client ", key, " already"));
            return;
        }
        auto made = StubService::Create(context_, std::move(udp), std::move(tcp_listener), std::move(client));
        if (made.ok())
            services_[key] = *std::move(made);
        else
            status = made.status();
    });
    return status;
}

void Stub::Remove(uint32_t key) {
    loop_->Call([&] { services_.erase(key); });
}

}  // namespace stockade::dns
