#include "userspace/cmd/sandbox_dns.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "bpf/wire/dns_answer.h"
#include "userspace/base/clock.h"
#include "userspace/base/log.h"
#include "userspace/dns/address_scope.h"
#include "userspace/dns/kernel_zones.h"
#include "userspace/dns/knowledge.h"
#include "userspace/dns/tiers.h"
#include "userspace/dns/zone_hash.h"
#include "userspace/policy/dns_names.h"

namespace stockade::cmd {
namespace {

constexpr size_t kMaxResolvConfBytes = 64 << 10;
// Ports of one rule that become entries of their own; more is what `ports` left out is for.
constexpr size_t kMaxPinnedPorts = SK_DNS_RULE_PORTS;

sk_dns_server ServerOf(const dns::StubAddress& address) {
    sk_dns_server out{};
    const auto& b = address.bytes;
    if (address.family == 4) {
        out.lo = uint64_t{b[0]} << 24 | uint64_t{b[1]} << 16 | uint64_t{b[2]} << 8 | b[3];
        return out;
    }
    for (int i = 0; i < 8; ++i) {
        out.hi = out.hi << 8 | b[i];
        out.lo = out.lo << 8 | b[i + 8];
    }
    return out;
}

// What a rule by name opens; port 0 = all.
std::vector<uint16_t> PortsOf(const sandbox::v1::StoredNameRule& rule) {
    std::vector<uint16_t> ports;
    for (int i = 0; i + 1 < rule.ports_size(); i += 2) {
        for (uint32_t port = rule.ports(i); port <= rule.ports(i + 1); ++port) ports.push_back(static_cast<uint16_t>(port));
    }
    if (ports.empty()) ports.push_back(0);
    return ports;
}

std::vector<std::string> NameServers(const std::string& resolv_conf) {
    std::vector<std::string> out;
    const StatusOr<std::string> text = ReadFile(resolv_conf, kMaxResolvConfBytes);
    if (!text.ok()) return out;  // the same as a file that names none, and told as that
    for (absl::string_view line : absl::StrSplit(*text, '\n')) {
        const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
        if (words.size() >= 2 && words[0] == "nameserver" && dns::UpstreamAddress::Parse(words[1]).ok())
            out.emplace_back(words[1]);
    }
    return out;
}

dns::Budgets AmountsOf(const policy::ResolvedPolicy& policy) {
    dns::Budgets out;
    if (!policy.dns) return out;
    for (const auto& [tier, bytes] : policy.dns->budget) {
        if (tier == "zone") out.zone = bytes;
        if (tier == "ranked") out.ranked = bytes;
        if (tier == "total") out.total = bytes;
    }
    if (out.zone != policy::kNoDnsBudget) out.warn_zone = out.zone / 2;
    out.warn_ranked = std::min(out.warn_ranked, out.ranked / 8);
    return out;
}

// One entry a name, whatever the policy says of it.
std::vector<kernel::DnsRule> RulesOf(const policy::ResolvedPolicy& policy, const sk_hash_keys& keys) {
    std::vector<kernel::DnsRule> rules;
    const auto rule = [&](absl::string_view name) -> sk_dns_rule& {
        const uint64_t zone = dns::ZoneHash(keys, name);
        const auto same = std::find_if(rules.begin(), rules.end(), [zone](const auto& r) { return r.zone == zone; });
        return same != rules.end() ? same->rule : rules.emplace_back(kernel::DnsRule{zone, {}}).rule;
    };
    for (absl::string_view name : policy::ResolvableNames(policy)) {
        const uint32_t flag = absl::ConsumePrefix(&name, "*.") ? SK_DNS_RULE_BELOW : SK_DNS_RULE_EXACT;
        rule(name).flags |= flag;
    }
    for (const policy::NetworkRule& strict : policy.network) {
        if (strict.kind != policy::NetworkKind::kName || !strict.tls_strict) continue;
        absl::string_view name = strict.text;
        const uint32_t flag = absl::ConsumePrefix(&name, "*.") ? SK_DNS_RULE_TLS_BELOW : SK_DNS_RULE_TLS_EXACT;
        rule(name).flags |= flag;
    }
    if (!policy.dns) return rules;
    for (const auto& [zone, grant] : policy.dns->grants) {
        sk_dns_rule& granted = rule(zone);
        granted.flags |= SK_DNS_RULE_TIER;
        granted.tier = SK_DNS_TIER_GRANTED;
        granted.budget = DnsUnits(grant.bytes);
    }
    return rules;
}

std::string BudgetId(const SandboxDns::Sandbox& sandbox) {
    return sandbox.session.empty() ? absl::StrCat("sandbox ", sandbox.id) : absl::StrCat("session ", sandbox.session);
}

// What the stub does for one sandbox. On its thread alone.
class Answerer {
  public:
    Answerer(kernel::Sensor& sensor, DnsBudgets& budgets, kernel::SlotRef ref, kernel::DnsBudgetRef budget,
             sandbox::v1::StoredDns plan)
        : sensor_(sensor), budgets_(budgets), ref_(ref), budget_(budget), plan_(std::move(plan)) {
        for (const auto& [zone, bytes] : plan_.grants()) (void)grants_.Add(zone, dns::Tier::kGranted, bytes);  // the parser took it
    }

    // What comes over TCP has passed no meter: it must not make us ask. A client that was told of a truncated
    // answer finds it in the cache.
    static dns::StubPolicy Judge(const dns::StubQuestion& question) {
        return question.tcp ? dns::StubPolicy::kFromCache : dns::StubPolicy::kForward;
    }

    // False = the answer would lead nowhere.
    bool Answered(const dns::StubAnswered& answered) {
        for (const sandbox::v1::StoredNameRule& rule : plan_.rules()) {
            if (!policy::CoversName(rule.name(), answered.name)) continue;
            for (const dns::StubAnswered::Pinned& pinned : answered.addresses) {
                if (!Pin(rule, pinned)) return false;
            }
        }
        if (answered.rcode == dns::kStubServerFailure) return true;
        const dns::Answer answer = {.name = answered.name, .sent = answered.name, .type = answered.type, .time_ns = BootNow(),
                                    .ttl_s = 0, .downlink_bytes = answered.downlink_bytes, .granted_bytes = Granted(answered.name)};
        budgets_.OnAnswer(budget_, ref_, answer, answered.from_cache && !answered.tcp);
        return true;
    }

  private:
    std::optional<uint32_t> Granted(absl::string_view name) const {
        const dns::Tiers::Entry entry = grants_.Find(name);
        return entry.tier == dns::Tier::kGranted ? std::optional(entry.budget_bytes) : std::nullopt;
    }

    bool Pin(const sandbox::v1::StoredNameRule& rule, const dns::StubAnswered::Pinned& pinned) {
        // Rebinding: a name of the world must not lead to what is behind it. Not pinned, it is refused at connect.
        if (!dns::IsPublicAddress(pinned.address)) return true;
        const uint64_t seconds = std::max<uint64_t>(pinned.ttl_s, SK_DNS_PIN_LEAST_SECONDS) + SK_DNS_PIN_GRACE_SECONDS;
        const uint64_t until = BootNow() + seconds * 1'000'000'000;
        const int family = pinned.address.family == 4 ? 2 : 10;  // AF_*
        const sk_dns_server address = ServerOf(pinned.address);
        for (const uint16_t port : PortsOf(rule)) {
            const Status status = sensor_.PinAddress(ref_, address, family, port, until, rule.tls_strict());
            if (status.ok()) continue;
            LogWarning("slot ", ref_.slot, ": ", status.message());
            return false;
        }
        return true;
    }

    kernel::Sensor& sensor_;
    DnsBudgets& budgets_;
    const kernel::SlotRef ref_;
    const kernel::DnsBudgetRef budget_;
    const sandbox::v1::StoredDns plan_;
    dns::Tiers grants_;
};

}  // namespace

// Written by the agent's thread, read by the stub's.
class SandboxDns::DeniedNames {
  public:
    void Set(std::set<std::string> names) {
        std::lock_guard lock(mutex_);
        names_ = std::move(names);
    }
    bool Has(const std::string& name) const {
        std::lock_guard lock(mutex_);
        return names_.count(name) != 0;
    }

  private:
    mutable std::mutex mutex_;
    std::set<std::string> names_;
};

StatusOr<sandbox::v1::StoredDns> SandboxDns::Plan(const policy::ResolvedPolicy& policy) const {
    sandbox::v1::StoredDns plan;
    if (policy.dns) {
        for (const policy::Entry& resolver : policy.dns->resolvers) plan.add_upstreams(resolver.text);
        for (const auto& [zone, grant] : policy.dns->grants) (*plan.mutable_grants())[zone] = grant.bytes;
    }
    if (plan.upstreams().empty()) {
        for (const std::string& server : NameServers(options_.resolv_conf)) plan.add_upstreams(server);
    }
    if (plan.upstreams().empty()) {
        return absl::FailedPreconditionError(absl::StrCat("the policy lets names be resolved, and ", options_.resolv_conf,
                                                          " names no resolver: write dns: {resolvers: [ADDRESS]}"));
    }
    for (const policy::NetworkRule& rule : policy.network) {
        if (rule.kind != policy::NetworkKind::kName) continue;
        sandbox::v1::StoredNameRule& stored = *plan.add_rules();
        stored.set_name(rule.text);
        stored.set_tls_strict(rule.tls_strict);
        size_t ports = 0;
        for (const policy::PortRange& range : rule.ports) {
            stored.add_ports(range.first);
            stored.add_ports(range.last);
            ports += range.last - range.first + 1u;
        }
        if (ports > kMaxPinnedPorts) {
            return absl::InvalidArgumentError(absl::StrCat(policy::ToString(rule.at), ": more than ", kMaxPinnedPorts,
                                                           " ports for a name; leave `ports` out to allow any port"));
        }
    }
    return plan;
}

Status SandboxDns::Ready() {
    if (stub_ != nullptr) return absl::OkStatus();
    SK_ASSIGN_OR_RETURN(dns::Knowledge knowledge, dns::MakeKnowledge({}));
    knowledge_ = std::make_unique<dns::Knowledge>(std::move(knowledge));
    std::vector<kernel::DnsKnown> known;
    for (const auto& [zone, value] : dns::KernelZones(*knowledge_, options_.sensor->keys())) known.push_back({zone, value});
    SK_RETURN_IF_ERROR(options_.sensor->SetDnsKnown(known));
    SK_ASSIGN_OR_RETURN(DnsLedger ledger, OpenLedger());
    ledger_ = std::make_unique<DnsLedger>(std::move(ledger));
    SK_ASSIGN_OR_RETURN(std::unique_ptr<dns::Stub> stub, dns::Stub::Start({}));
    SK_ASSIGN_OR_RETURN(owned_budgets_, DnsBudgets::Create({.sensor = options_.sensor,
                                                            .knowledge = knowledge_.get(),
                                                            .publish = options_.publish,
                                                            .file = options_.runtime_dir + "/dns_budgets",
                                                            .ledger = ledger_.get()}));
    if (adopted_) owned_budgets_->CloseUnused();
    // Last: from here on the other thread uses them.
    stub_ = std::move(stub);
    budgets_ = owned_budgets_.get();
    return absl::OkStatus();
}

StatusOr<DnsLedger> SandboxDns::OpenLedger() const {
    const sk_hash_keys keys = options_.sensor->keys();
    SK_RETURN_IF_ERROR(KeepHashKeys(options_.state_dir, keys));
    SK_ASSIGN_OR_RETURN(const std::optional<sk_hash_keys> kept, ReadHashKeys(options_.state_dir));
    if (!kept || std::memcmp(&*kept, &keys, sizeof(keys)) != 0) {
        return absl::FailedPreconditionError(absl::StrCat(
            options_.state_dir, " is of other pinned maps: its DNS budgets mean nothing to these. Another state_dir is needed, or an "
                                "empty one"));
    }
    return DnsLedger::Open({.dir = options_.state_dir + "/dns_budgets"});
}

void SandboxDns::KeepAll() {
    if (owned_budgets_ != nullptr) owned_budgets_->KeepAll();
}

void SandboxDns::Keep() {
    if (owned_budgets_ != nullptr) owned_budgets_->Keep();
}

void SandboxDns::EndAdoption() {
    adopted_ = true;
    if (owned_budgets_ != nullptr) owned_budgets_->CloseUnused();
}

// Who answers: the stub; or the upstreams themselves, and then the kernel pins.
Status SandboxDns::BindServers(const Sandbox& sandbox, kernel::DnsBinding* binding) const {
    if (!sandbox.without_stub) {
        SK_ASSIGN_OR_RETURN(const dns::UpstreamAddress stub, dns::UpstreamAddress::Parse(sandbox.address));
        binding->tcp = true;
        binding->servers = {ServerOf(stub.address)};
        return absl::OkStatus();
    }
    binding->answers = true;
    for (const std::string& upstream : sandbox.plan.upstreams()) {
        SK_ASSIGN_OR_RETURN(const dns::UpstreamAddress address, dns::UpstreamAddress::Parse(upstream));
        binding->servers.push_back(ServerOf(address.address));
    }
    for (const sandbox::v1::StoredNameRule& rule : sandbox.plan.rules()) {
        absl::string_view name = rule.name();
        const bool below = absl::ConsumePrefix(&name, "*.");
        binding->pins.push_back({dns::ZoneHash(options_.sensor->keys(), name), below, PortsOf(rule), rule.tls_strict()});
    }
    return absl::OkStatus();
}

Status SandboxDns::Start(Sandbox sandbox, const policy::ResolvedPolicy& policy) {
    SK_RETURN_IF_ERROR(Ready());
    kernel::DnsBinding binding;
    binding.mode = policy::DnsModeOf(policy);
    SK_RETURN_IF_ERROR(BindServers(sandbox, &binding));
    binding.rules = RulesOf(policy, options_.sensor->keys());
    const std::string budget_id = BudgetId(sandbox);
    SK_ASSIGN_OR_RETURN(binding.budget, owned_budgets_->Use(budget_id, AmountsOf(policy), !sandbox.session.empty()));
    bound_[sandbox.ref.slot].budget_id = budget_id;
    SK_RETURN_IF_ERROR(options_.sensor->BindDns(sandbox.ref, binding));
    bound_[sandbox.ref.slot].binding = binding;
    if (sandbox.without_stub) return absl::OkStatus();
    return Serve(std::move(sandbox), binding.budget);
}

Status SandboxDns::Adopt(Sandbox sandbox) {
    SK_RETURN_IF_ERROR(Ready());
    const std::string budget_id = BudgetId(sandbox);
    SK_ASSIGN_OR_RETURN(const kernel::DnsBudgetRef budget, owned_budgets_->Use(budget_id, {}, !sandbox.session.empty()));
    bound_[sandbox.ref.slot].budget_id = budget_id;
    if (sandbox.without_stub) return absl::OkStatus();  // the kernel pins, whoever the agent is
    return Serve(std::move(sandbox), budget);
}

Status SandboxDns::Serve(Sandbox sandbox, const kernel::DnsBudgetRef& budget) {
    dns::StubClient client;
    for (const std::string& upstream : sandbox.plan.upstreams()) {
        SK_ASSIGN_OR_RETURN(dns::UpstreamAddress address, dns::UpstreamAddress::Parse(upstream));
        client.upstreams.push_back(address);
    }
    auto answerer = std::make_shared<Answerer>(*options_.sensor, *owned_budgets_, sandbox.ref, budget, sandbox.plan);
    auto denied = std::make_shared<DeniedNames>();
    bound_[sandbox.ref.slot].denied = denied;
    client.judge = [denied](const dns::StubQuestion& question) {
        return denied->Has(question.name) ? dns::StubPolicy::kRefuse : Answerer::Judge(question);
    };
    client.answered = [answerer, id = sandbox.id, tell = options_.answered](const dns::StubAnswered& answered) {
        if (tell) tell(id, answered);
        return answerer->Answered(answered);
    };
    return stub_->Add(sandbox.ref.slot, std::move(sandbox.udp), std::move(sandbox.tcp), std::move(client));
}

Status SandboxDns::Silence(const kernel::SlotRef& ref, bool quiet) {
    const auto found = bound_.find(ref.slot);
    if (found == bound_.end()) return absl::OkStatus();
    if (!found->second.binding && !quiet)
        return absl::FailedPreconditionError("an earlier agent bound its names: they stay closed");
    kernel::DnsBinding binding = found->second.binding.value_or(kernel::DnsBinding{});
    if (quiet) {
        binding.mode = SK_DNS_CLOSED;
        binding.servers.clear();
    }
    return options_.sensor->BindDns(ref, binding);
}

Status SandboxDns::DenyNames(const kernel::SlotRef& ref, std::set<std::string> names) {
    const auto found = bound_.find(ref.slot);
    if (found == bound_.end()) return absl::OkStatus();
    if (found->second.denied == nullptr && !names.empty())
        return absl::UnimplementedError("its names are answered by no stub of ours: use isolate-network");
    if (found->second.denied != nullptr) found->second.denied->Set(std::move(names));
    return absl::OkStatus();
}

void SandboxDns::End(const kernel::SlotRef& ref) {
    const auto found = bound_.find(ref.slot);
    if (found == bound_.end()) return;
    if (stub_ != nullptr) stub_->Remove(ref.slot);
    owned_budgets_->Release(found->second.budget_id);
    bound_.erase(found);
}

void SandboxDns::OnRecord(std::span<const uint8_t> record) {
    if (DnsBudgets* budgets = budgets_) budgets->OnRecord(record);
}

}  // namespace stockade::cmd
