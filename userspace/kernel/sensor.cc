#include "userspace/kernel/sensor.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/base/log.h"
#include "userspace/kernel/bpffs.h"
#include "userspace/kernel/dns_maps.h"
#include "userspace/kernel/pins.h"
#include "userspace/kernel/policy_maps.h"
#include "userspace/kernel/probe.h"
#include "userspace/kernel/programs.h"
#include "userspace/kernel/ring_reader.h"
#include "userspace/kernel/slots.h"

namespace stockade::kernel {
namespace {

// So begin the names under which the system call exit is pinned while a sandbox lives.
constexpr char kCallsPin[] = "sys_exit_";

// Their links' pins have a number behind it.
std::string NetworkPin(uint64_t cgroup_id) { return absl::StrCat("net_", cgroup_id, "_"); }

StatusOr<sk_hash_keys> DrawKeys() {
    sk_hash_keys keys{};
    if (getrandom(&keys, sizeof(keys), 0) != sizeof(keys)) return ErrnoStatus(errno, "draw the hash keys");
    keys.k1 |= 1;
    keys.k2 |= 1;
    return keys;
}

StatusOr<sk_hash_keys> PinnedKeys(const std::string& maps_dir) {
    std::string path = absl::StrCat(maps_dir, "/config");
    Fd fd(bpf_obj_get(path.c_str()));
    if (!fd.ok()) return ErrnoStatus(errno, absl::StrCat("open the pinned map ", path));
    uint32_t zero = 0;
    sk_config config{};
    if (bpf_map_lookup_elem(fd.get(), &zero, &config) != 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (config.abi != SK_CONFIG_ABI) {
        return absl::FailedPreconditionError(absl::StrCat(path, " has abi ", config.abi, ", this agent ", SK_CONFIG_ABI,
                                                          "; run: stockade doctor --clean"));
    }
    return config.keys;
}

// Classic tracepoints are attached by numbers that stand there.
Status MountTracefs() {
    constexpr char kDir[] = "/sys/kernel/tracing";
    if (access(absl::StrCat(kDir, "/events").c_str(), F_OK) == 0) return absl::OkStatus();
    if (mount("tracefs", kDir, "tracefs", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("mount tracefs, which this kernel's tracepoints need (mount -t tracefs tracefs ", kDir, ")"));
}

class SensorImpl : public Sensor {
  public:
    static StatusOr<std::unique_ptr<Sensor>> Make(const Options& options);
    ~SensorImpl() override;

    Backend backend() const override { return backend_; }
    model::FeatureSet missing() const override { return missing_; }
    bool adopted() const override { return adopted_; }
    sk_hash_keys keys() const override { return keys_; }

    StatusOr<uint32_t> PublishPolicy(std::span<const union sk_cell> cells) override { return policies_->Acquire(cells); }
    Status RetirePolicy(uint32_t index) override { return policies_->Release(index); }
    StatusOr<SlotRef> BindSlot(const Binding& binding) override;
    Status AttachNetwork(int cgroup_fd) override;
    Status DetachNetwork(uint64_t cgroup_id) override;
    Status RemoveEarlierSets() override;
    Status Label(const SlotRef& ref, int pidfd) override { return slots_->Label(ref, pidfd); }
    StatusOr<int> LabelPresent(const SlotRef& ref) override { return slots_->LabelPresent(ref); }
    Status SwapPolicy(const SlotRef& ref, uint32_t index) override { return slots_->SwapPolicy(ref, index); }
    Status Condemn(const SlotRef& ref, uint32_t code) override { return slots_->Condemn(ref, code); }
    StatusOr<sk_state> ReadState(const SlotRef& ref) override { return slots_->ReadState(ref); }
    Status FreeSlot(const SlotRef& ref) override;
    Status Rest() override { return slots_->live_count() == 0 ? SetCalls(false) : absl::OkStatus(); }
    StatusOr<std::vector<LiveSlot>> LiveSlots() override { return slots_->Live(); }
    StatusOr<int> PollRings(int timeout_ms, const RecordFn& fn) override { return rings_->Poll(timeout_ms, fn); }
    void WakeRings() override { rings_->Wake(); }
    Status SetDnsKnown(std::span<const DnsKnown> known) override { return dns_->SetKnown(known); }
    StatusOr<DnsBudgetRef> OpenDnsBudget(const sk_dns_budget& amounts, std::span<const DnsZoneSpent> zones) override { return dns_->OpenBudget(amounts, zones); }
    StatusOr<std::vector<DnsZoneSpent>> ReadDnsZones() const override { return dns_->ReadZones(); }
    StatusOr<sk_dns_budget> ReadDnsBudget(const DnsBudgetRef& ref) const override { return dns_->ReadBudget(ref); }
    Status CloseDnsBudget(const DnsBudgetRef& ref) override { return dns_->CloseBudget(ref); }
    Status BindDns(const SlotRef& ref, const DnsBinding& binding) override { return dns_->Bind(ref, binding); }
    Status PinAddress(const SlotRef& ref, const sk_dns_server& address, int family, uint16_t port, uint64_t until_ns, bool tls) override {
        return dns_->Pin(ref, address, family, port, until_ns, tls);
    }
    Status RefundDns(const sk_dns_refund& refund) override { return dns_->Refund(refund); }
    RingPosition Handed() const override { return rings_->Handed(); }
    void ReleaseRings(const RingPosition& upto) override { rings_->Release(upto); }
    bool RingsHalfHeld() const override { return rings_->HalfHeld(); }
    StatusOr<std::vector<uint64_t>> ReadDnsAnswers() override { return ReadCounters("dns_answers", SK_DNS_ANSWER_COUNT); }
    StatusOr<std::vector<uint64_t>> ReadErrors() override { return ReadCounters("errors", SK_ERROR_COUNT); }
    StatusOr<std::vector<ProgramInfo>> Programs() override;
    StatusOr<uint64_t> LeftOut() override;

  private:
    Status KeepKeys();
    StatusOr<std::vector<uint64_t>> ReadCounters(const char* map, uint32_t count);
    Status SetCalls(bool wanted);

    // Destroyed in reverse: rings and slots before the programs whose maps they borrow.
    Backend backend_ = Backend::kSignal;
    model::FeatureSet missing_;
    bool adopted_ = false;
    bool classic_ = false;   // tracepoints may be preempted
    uint64_t left_out_before_ = 0;  // before our time, by programs that are kept
    bool two_sets_ = false;  // published beside an earlier agent's
    sk_hash_keys keys_{};
    Pins pins_;
    std::unique_ptr<class Programs> programs_;
    std::map<uint64_t, std::vector<Fd>> cgroup_links_;  // by the cgroup's id
    std::unique_ptr<PolicyMaps> policies_;
    std::unique_ptr<Slots> slots_;
    std::unique_ptr<DnsMaps> dns_;
    std::unique_ptr<RingReader> rings_;
};

StatusOr<std::unique_ptr<Sensor>> SensorImpl::Make(const Options& options) {
    auto sensor = std::make_unique<SensorImpl>();
    SK_ASSIGN_OR_RETURN(ProbeReport report, Probe({}));
    SK_ASSIGN_OR_RETURN(sensor->backend_, Choose(report, options.backend));
    sensor->missing_ = report.missing();
    if (!options.pin_dir.empty()) SK_RETURN_IF_ERROR(EnsureBpffs(options.pin_dir, kUsualBpffs, InHostMounts()));
    SK_ASSIGN_OR_RETURN(sensor->pins_, Pins::Open(options.pin_dir));
    sensor->adopted_ = sensor->pins_.published();
    sensor->classic_ = !report.has(Feature::CANARY_WHOLE);
    if (sensor->classic_) SK_RETURN_IF_ERROR(MountTracefs());
    class Programs::Options load{.backend = sensor->backend_,
                                 .keys = {},
                                 .classic = sensor->classic_,
                                 .follows = report.has(Feature::PROG_FEXIT),
                                 .reuse_maps_dir = "",
                                 .earlier_sets = {}};
    if (sensor->adopted_) {
        load.reuse_maps_dir = sensor->pins_.maps_dir();
        SK_ASSIGN_OR_RETURN(load.keys, PinnedKeys(load.reuse_maps_dir));
        SK_ASSIGN_OR_RETURN(load.earlier_sets, sensor->pins_.Sets());
    } else if (options.keys) {
        load.keys = *options.keys;
    } else {
        SK_ASSIGN_OR_RETURN(load.keys, DrawKeys());
    }
    sensor->keys_ = load.keys;
    SK_ASSIGN_OR_RETURN(sensor->programs_, Programs::Load(load));
    SK_RETURN_IF_ERROR(sensor->KeepKeys());
    sensor->policies_ = std::make_unique<PolicyMaps>(PolicyMaps::OuterFds{sensor->programs_->MapFd("policies_small"), sensor->programs_->MapFd("policies_medium"), sensor->programs_->MapFd("policies_large")});
    SK_ASSIGN_OR_RETURN(Slots slots, Slots::Create(sensor->programs_.get()));
    sensor->slots_ = std::make_unique<Slots>(std::move(slots));
    SK_ASSIGN_OR_RETURN(DnsMaps dns, DnsMaps::Create(sensor->programs_.get()));
    sensor->dns_ = std::make_unique<DnsMaps>(std::move(dns));
    for (const LiveSlot& live : sensor->slots_->Live()) sensor->policies_->AddUser(live.slot.policy_index);
    SK_ASSIGN_OR_RETURN(sensor->rings_, RingReader::Create({sensor->programs_->MapFd("lifecycle_ring"), sensor->programs_->MapFd("violation_ring"), sensor->programs_->MapFd("telemetry_ring")}));
    SK_RETURN_IF_ERROR(sensor->programs_->AttachAll());
    // The earlier set's system call exit goes with RemoveEarlierSets: ours must stand before.
    if (sensor->slots_->live_count() > 0) {
        SK_ASSIGN_OR_RETURN(auto calls, sensor->programs_->AttachCalls());
        for (auto& link : calls) sensor->programs_->links().push_back(std::move(link));
    }
    SK_RETURN_IF_ERROR(sensor->adopted_ ? sensor->pins_.PublishSet(*sensor->programs_)
                                        : sensor->pins_.PublishFirst(*sensor->programs_));
    sensor->two_sets_ = sensor->adopted_;
    if (sensor->programs_->kept()) {
        LogInfo("programs of the earlier agent kept");
        SK_ASSIGN_OR_RETURN(sensor->left_out_before_, sensor->LeftOut());
    }
    return sensor;
}

SensorImpl::~SensorImpl() {
    // Nobody is left to tell; the next agent removes what stays.
    if (slots_ != nullptr) (void)Rest();
    if (two_sets_) (void)pins_.RemoveOwnSet(*programs_);
}

Status SensorImpl::KeepKeys() {
    uint32_t zero = 0;
    sk_config config{};
    int fd = programs_->MapFd("config");
    if (bpf_map_lookup_elem(fd, &zero, &config) != 0) return ErrnoStatus(errno, "read the configuration map");
    config.keys = keys_;
    config.abi = SK_CONFIG_ABI;
    return NegErrnoStatus(bpf_map_update_elem(fd, &zero, &config, BPF_ANY), "write the configuration map");
}

// The system call exit costs the whole machine some 100 ns a call: it stands from the first sandbox on until Rest.
Status SensorImpl::SetCalls(bool wanted) {
    auto& links = programs_->links();
    const auto is_calls = [](const auto& link) { return absl::StartsWith(link.first, kCallsPin); };
    if (wanted == std::any_of(links.begin(), links.end(), is_calls)) return absl::OkStatus();
    if (!wanted) {
        for (const auto& link : links) {
            if (is_calls(link)) SK_RETURN_IF_ERROR(pins_.Unpin(*programs_, link.first));
        }
        std::erase_if(links, is_calls);
        return absl::OkStatus();
    }
    SK_ASSIGN_OR_RETURN(auto calls, programs_->AttachCalls());
    for (auto& link : calls) {
        const Status pinned = pins_.PinLink(*programs_, link.first, link.second.get());
        if (!pinned.ok()) {
            (void)SetCalls(false);  // all or none; the failure to pin is told
            return pinned;
        }
        links.push_back(std::move(link));
    }
    return absl::OkStatus();
}

StatusOr<SlotRef> SensorImpl::BindSlot(const Binding& binding) {
    SK_RETURN_IF_ERROR(SetCalls(true));
    auto ref = slots_->Bind(binding);
    if (!ref.ok()) (void)Rest();  // the failure of Bind is told
    return ref;
}

Status SensorImpl::FreeSlot(const SlotRef& ref) {
    SK_RETURN_IF_ERROR(slots_->Free(ref));
    return dns_->Unbind(ref);
}

Status SensorImpl::AttachNetwork(int cgroup_fd) {
    struct stat cgroup {};
    if (fstat(cgroup_fd, &cgroup) != 0) return ErrnoStatus(errno, "look at the cgroup");
    if (cgroup_links_.contains(cgroup.st_ino)) return absl::AlreadyExistsError("the cgroup has the network programs");
    SK_ASSIGN_OR_RETURN(cgroup_links_[cgroup.st_ino],
                        programs_->AttachCgroup(cgroup_fd, NetworkPin(cgroup.st_ino)));
    const std::vector<Fd>& links = cgroup_links_[cgroup.st_ino];
    for (size_t i = 0; i < links.size(); i++) {
        const Status pinned =
            pins_.PinLink(*programs_, absl::StrCat(NetworkPin(cgroup.st_ino), i), links[i].get());
        if (pinned.ok()) continue;
        (void)DetachNetwork(cgroup.st_ino);  // all or none; the failure to pin is told
        return pinned;
    }
    return absl::OkStatus();
}

Status SensorImpl::DetachNetwork(uint64_t cgroup_id) {
    const auto found = cgroup_links_.find(cgroup_id);
    if (found == cgroup_links_.end()) return absl::OkStatus();
    Status status;
    for (size_t i = 0; i < found->second.size(); i++)
        status.Update(pins_.Unpin(*programs_, absl::StrCat(NetworkPin(cgroup_id), i)));
    cgroup_links_.erase(found);
    return status;
}

Status SensorImpl::RemoveEarlierSets() {
    SK_RETURN_IF_ERROR(pins_.RemoveOtherSets(*programs_));
    two_sets_ = false;
    return absl::OkStatus();
}

StatusOr<std::vector<uint64_t>> SensorImpl::ReadCounters(const char* map, uint32_t count) {
    int cpus = libbpf_num_possible_cpus();
    if (cpus < 0) return NegErrnoStatus(cpus, "count the CPUs");
    std::vector<uint64_t> sums(count, 0);
    std::vector<uint64_t> values(static_cast<size_t>(cpus));
    for (uint32_t i = 0; i < count; i++) {
        if (bpf_map_lookup_elem(programs_->MapFd(map), &i, values.data()) != 0) {
            return ErrnoStatus(errno, absl::StrCat("read the counters of ", map));
        }
        for (uint64_t value : values) sums[i] += value;
    }
    return sums;
}

StatusOr<std::vector<Sensor::ProgramInfo>> SensorImpl::Programs() {
    std::vector<ProgramInfo> infos;
    bpf_program* program;
    bpf_object__for_each_program(program, programs_->object()) {
        const int fd = programs_->ProgramFd(bpf_program__name(program));
        if (fd < 0) continue;
        bpf_prog_info info{};
        uint32_t size = sizeof(info);
        if (bpf_obj_get_info_by_fd(fd, &info, &size) != 0) return ErrnoStatus(errno, "ask about a program");
        infos.push_back({bpf_program__name(program), info.verified_insns, info.recursion_misses,
                         info.type == BPF_PROG_TYPE_TRACEPOINT});
    }
    return infos;
}

// Where tracepoints may be preempted, births are left out as well, and made up for (task_by_cgroup).
StatusOr<uint64_t> SensorImpl::LeftOut() {
    SK_ASSIGN_OR_RETURN(const std::vector<ProgramInfo> infos, Programs());
    uint64_t sum = 0;
    for (const ProgramInfo& info : infos) {
        if (!classic_ || info.classic) sum += info.left_out;
    }
    return sum - left_out_before_;
}

}  // namespace

StatusOr<std::unique_ptr<Sensor>> Sensor::Create(const Options& options) { return SensorImpl::Make(options); }

}  // namespace stockade::kernel
