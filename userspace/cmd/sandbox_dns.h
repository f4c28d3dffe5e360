// The DNS of sandboxes: what the kernel lets them ask, who answers, and which addresses an answer opens.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"
#include "userspace/cmd/dns_budgets.h"
#include "userspace/dns/stub.h"
#include "userspace/kernel/sensor.h"
#include "userspace/policy/document.h"
#include "userspace/sandbox/state.pb.h"

namespace stockade::cmd {

// One thread, but for OnRecord, which is of the thread that reads the rings. Lists and model are read when the
// first sandbox asks for names: most never do.
class SandboxDns {
  public:
    struct Options {
        kernel::Sensor* sensor = nullptr;  // not owned
        std::function<void(v1::Event)> publish;
        // An answer of the stub's, on its thread, before the sandbox (by id) has it.
        std::function<void(const std::string&, const dns::StubAnswered&)> answered{};
        std::string runtime_dir;
        std::string state_dir;
        std::string resolv_conf =
            "/etc/resolv.conf";  // of the host: the upstreams of a policy that names none
    };
    explicit SandboxDns(Options options) : options_(std::move(options)) {}

    // What a next agent needs, too. kFailedPrecondition where no upstream is to be had.
    StatusOr<sandbox::v1::StoredDns> Plan(const policy::ResolvedPolicy& policy) const;

    struct Sandbox {
        kernel::SlotRef ref;
        std::string id;
        std::string session;  // empty = the budget is the sandbox's own
        sandbox::v1::StoredDns plan;
        std::string address;  // of its stub: "10.88.x.y"
        Fd udp, tcp;
        // As in a pod: the plan's upstreams are asked at port 53, and the kernel pins what they answer.
        bool without_stub = false;
    };
    // Binds in the kernel, then answers. kInvalidArgument where more resolvers are named than the kernel can pin.
    Status Start(Sandbox sandbox, const policy::ResolvedPolicy& policy);
    // The kernel's binding and the budget stand: an earlier agent made them.
    Status Adopt(Sandbox sandbox);
    // Whatever was to be adopted has been.
    void EndAdoption();
    // Budgets go to disk: a little at each call, all at the end.
    void Keep();
    void KeepAll();
    // Its thread has ended, and nothing is published any more.
    void StopAnswers() { stub_.reset(); }
    // Zeros while nobody has asked.
    dns::StubCounters counters() const { return stub_ != nullptr ? stub_->counters() : dns::StubCounters(); }
    // Nothing is asked any more; `quiet` = false: as before. Without effect for a sandbox that asks nobody anyway.
    // kFailedPrecondition to let an adopted one ask again: its binding was an earlier agent's.
    Status Silence(const kernel::SlotRef& ref, bool quiet);
    // The stub answers REFUSED to these, and nothing leaves; in the place of those before. Addresses that a name has
    // opened stay open for their time. Without effect for a sandbox that asks nobody; kUnimplemented without a stub.
    Status DenyNames(const kernel::SlotRef& ref, std::set<std::string> names);
    // Without effect for a sandbox that has none.
    void End(const kernel::SlotRef& ref);

    void OnRecord(std::span<const uint8_t> record);

  private:
    class DeniedNames;
    struct Bound {
        std::string budget_id;
        std::optional<kernel::DnsBinding> binding{};  // absent: adopted
        std::shared_ptr<DeniedNames> denied{};        // null: no stub
    };
    Status Ready();
    StatusOr<DnsLedger> OpenLedger() const;
    Status BindServers(const Sandbox& sandbox, kernel::DnsBinding* binding) const;
    Status Serve(Sandbox sandbox, const kernel::DnsBudgetRef& budget);

    const Options options_;
    bool adopted_ = false;
    std::unique_ptr<dns::Knowledge> knowledge_;
    std::unique_ptr<DnsLedger> ledger_;
    std::unique_ptr<DnsBudgets> owned_budgets_;
    std::atomic<DnsBudgets*> budgets_{nullptr};  // for the other thread
    std::unique_ptr<dns::Stub> stub_;            // ends before what its functions use
    std::map<uint32_t, Bound> bound_;            // by slot
};

}  // namespace stockade::cmd
