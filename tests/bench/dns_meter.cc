#include "tests/bench/dns_meter.h"

#include <bpf/bpf.h>
#include <time.h>

#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "bpf/wire/dns_zone.h"
#include "tests/bench/query.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/dns/knowledge.h"

namespace stockade::bench {
namespace {

constexpr sk_hash_keys kKeys = {0x1234567890abcdef, 0xfedcba0987654321, 42};
constexpr int kBatch = 1000;
constexpr uint64_t kBetweenNs = 1'000'000;  // from query to query, by the meter's clock
constexpr uint32_t kKernelZones = 2000;

using Names = std::vector<std::string>;

Names UsualNames() {
    Names names;
    for (const Query& query : UsualQueries()) names.push_back(query.name);
    return names;
}

// More of them than a meter remembers: each is new each time.
Names FreshNames(const std::string& before_zone) {
    Names names;
    for (int i = 0; i < 8192; i++)
        names.push_back(absl::StrCat(absl::StrFormat("%08x", i), before_zone, ".", kQueryZone));
    return names;
}

uint64_t SpentNs() {
    timespec now{};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);  // it is always there
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

StatusOr<Figure> TimeOf(const Settings& settings, const dns::Knowledge& knowledge, const std::string& name,
                        const Names& names) {
    dns::Meter meter(knowledge, dns::MeterState(kKeys));
    std::vector<double> samples;
    uint64_t asked = 0, dropped = 0;
    const uint64_t end = BootNow() + static_cast<uint64_t>(settings.seconds * 1e9 / 3);
    do {
        const uint64_t before = SpentNs();
        for (int i = 0; i < kBatch; i++) {
            const std::string& text = names[asked % names.size()];
            dropped +=
                meter.Ask({.name = text, .sent = text, .type = 1, .time_ns = ++asked * kBetweenNs}).verdict ==
                dns::Verdict::kDrop;
        }
        samples.push_back(static_cast<double>(SpentNs() - before) / kBatch);
    } while (BootNow() < end);
    if (dropped != 0)
        return absl::InternalError(absl::StrCat(name, ": ", dropped, " of ", asked, " queries were dropped"));
    Figure figure{.name = name};
    figure.with = QuantilesOf(std::move(samples));
    return figure;
}

Figure Bytes(const std::string& name, double bytes, const std::string& note, double limit = 0) {
    Figure figure{.name = name, .unit = "B"};
    figure.with = QuantilesOf({bytes});
    figure.note = note;
    if (limit > 0)
        figure.target = {
            .of = Target::Of::kMedian, .limit = limit, .text = absl::StrCat("at most ", limit, " B")};
    return figure;
}

// State after `names` of each of `zones`.
size_t StateBytes(const dns::Knowledge& knowledge, int zones, int names) {
    dns::Meter meter(knowledge, dns::MeterState(kKeys));
    uint64_t time_ns = 0;
    for (int zone = 0; zone < zones; zone++) {
        for (int name = 0; name < names; name++) {
            const std::string text = absl::StrCat("n", name, ".zone", zone, ".test");
            (void)meter.Ask({.name = text,
                             .sent = text,
                             .type = 1,
                             .time_ns = time_ns += kBetweenNs});  // only its state counts
        }
    }
    return meter.state().memory_bytes();
}

// What the kernel says that the map holds; 0 where it says only how large it may grow (before 6.4).
StatusOr<double> HeldBytes(int map_fd) {
    SK_ASSIGN_OR_RETURN(const std::string info, ReadFile(absl::StrCat("/proc/self/fdinfo/", map_fd), 4096));
    for (const absl::string_view line : absl::StrSplit(info, '\n')) {
        const std::vector<absl::string_view> words = absl::StrSplit(line, '\t');
        uint64_t bytes;
        if (words.size() == 2 && words[0] == "memlock:" && absl::SimpleAtoi(words[1], &bytes))
            return static_cast<double>(bytes);
    }
    return absl::NotFoundError("the kernel does not say what a map holds");
}

// One more entry of `dns_zones`, by the difference that many make.
StatusOr<double> KernelZoneBytes(kernel::Programs& programs) {
    const int fd = programs.MapFd("dns_zones");
    SK_ASSIGN_OR_RETURN(const double before, HeldBytes(fd));
    sk_dns_zone_key key{.zone = 0, .budget = SK_DNS_BUDGETS, .generation = 1};  // of no budget
    const sk_dns_zone value{};
    for (key.zone = 1; key.zone <= kKernelZones; key.zone++)
        SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_update_elem(fd, &key, &value, BPF_NOEXIST), "add a zone"));
    SK_ASSIGN_OR_RETURN(const double after, HeldBytes(fd));
    for (key.zone = 1; key.zone <= kKernelZones; key.zone++)
        SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_delete_elem(fd, &key), "remove a zone"));
    return (after - before) / kKernelZones;
}

}  // namespace

Status MeasureMeter(const Settings& settings, std::vector<Figure>* figures) {
    dns::KnowledgeTexts texts;
    texts.budgets.zone = texts.budgets.total = dns::Budgets::kUnlimited;
    SK_ASSIGN_OR_RETURN(const dns::Knowledge knowledge, dns::MakeKnowledge(texts));
    const std::string rest =
        absl::StrCat(std::string(40, 'a'), ".", std::string(47, 'b'));  // 96 characters with the digits
    for (const auto& [name, names] :
         {std::pair("dns.meter.usual", UsualNames()), std::pair("dns.meter.new_name", FreshNames(""))}) {
        SK_ASSIGN_OR_RETURN(Figure figure, TimeOf(settings, knowledge, name, names));
        figure.target = {.of = Target::Of::kMedian, .limit = 1000, .text = "at most 1,000 ns"};
        figures->push_back(std::move(figure));
    }
    SK_ASSIGN_OR_RETURN(Figure longest,
                        TimeOf(settings, knowledge, "dns.meter.longest_name", FreshNames(rest)));
    figures->push_back(std::move(longest));
    return absl::OkStatus();
}

Status MeasureDnsMemory(kernel::Programs& programs, std::vector<Figure>* figures) {
    SK_ASSIGN_OR_RETURN(const dns::Knowledge knowledge, dns::MakeKnowledge({}));
    constexpr int kZones = 100;
    const auto empty = static_cast<double>(StateBytes(knowledge, 0, 0));
    const auto zones = static_cast<double>(StateBytes(knowledge, kZones, 2));
    figures->push_back(Bytes("dns.memory.zone", (zones - empty) / kZones,
                             "user space, each of 100 zones with two names", 64));
    figures->push_back(Bytes("dns.memory.budget_id", static_cast<double>(StateBytes(knowledge, 2000, 5)),
                             "user space, after 10,000 names in 2,000 zones", 16384));
    SK_ASSIGN_OR_RETURN(const double held, KernelZoneBytes(programs));
    Figure zone = Bytes("dns.memory.kernel_zone", held, "map dns_zones, one entry");
    constexpr double kMost = SK_DNS_BUDGET_ZONES + 2;
    Figure budget = Bytes("dns.memory.kernel_budget_id", sizeof(sk_dns_budget) + kMost * held,
                          absl::StrCat("maps dns_budgets and dns_zones, with ", kMost, " zones"));
    if (held == 0) zone.skipped = budget.skipped = "this kernel does not say what a map holds";
    figures->push_back(std::move(zone));
    figures->push_back(std::move(budget));
    return absl::OkStatus();
}

}  // namespace stockade::bench
