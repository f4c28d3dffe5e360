#include "userspace/model/names.h"

#include <algorithm>

#include "bpf/wire/dns_zone.h"
#include "bpf/wire/escape.h"
#include "bpf/wire/exec.h"
#include "bpf/wire/file.h"
#include "bpf/wire/kinds.h"
#include "bpf/wire/net.h"
#include "bpf/wire/policy.h"
#include "userspace/model/coverage.h"
#include "userspace/model/lifecycle.h"

namespace stockade::model {
namespace {

#define X(number, NAME, text) {number, text},
constexpr Name kVerdicts[] = {SK_VERDICTS(X)};
constexpr Name kOutcomes[] = {SK_OUTCOMES(X)};
constexpr Name kLocks[] = {SK_LOCKS(X)};
constexpr Name kFileOps[] = {SK_FILE_OPS(X)};
constexpr Name kNetOps[] = {SK_NET_OPS(X)};
constexpr Name kDnsTiers[] = {SK_DNS_TIERS(X)};
constexpr Name kEscapeOps[] = {SK_ESCAPE_OPS(X)};
constexpr Name kLifecycleOps[] = {SK_LIFECYCLE_STEPS(X)};
#undef X
#define X(number, NAME, text, sentence) {number, text},
constexpr Name kCodes[] = {SK_CODES(X)};
#undef X
#define X(number, NAME, stem) {number, #stem},
constexpr Name kWireKinds[] = {SK_KINDS(X)};
#undef X

constexpr Name kSections[] = {
    {SK_SECTION_EXEC, "exec"},     {SK_SECTION_FILES, "files"}, {SK_SECTION_NETWORK, "network"},
    {SK_SECTION_ESCAPE, "escape"}, {SK_SECTION_DNS, "dns"},     {SK_SECTION_ENTERED, "entered"},
};
static_assert(std::size(kSections) == SK_SECTION_COUNT);

constexpr Name kBackends[] = {
    {SK_BACKEND_SIGNAL, "signal"}, {SK_BACKEND_LSM, "lsm"}, {SK_BACKEND_CGROUP, "cgroup"}};
constexpr Name kExecRoles[] = {{SK_EXEC_PROGRAM, "program"},
                               {SK_EXEC_INTERPRETER, "interpreter"},
                               {SK_EXEC_MAPPED, "mapped"}};
constexpr Name kSeverities[] = {
    {0, "info"}, {1, "low"}, {2, "medium"}, {3, "high"}, {4, "critical"}};

}  // namespace

Table Verdicts() { return kVerdicts; }
Table Outcomes() { return kOutcomes; }
Table Locks() { return kLocks; }
Table Codes() { return kCodes; }
Table Sections() { return kSections; }
Table Backends() { return kBackends; }
Table ExecRoles() { return kExecRoles; }
Table FileOps() { return kFileOps; }
Table NetOps() { return kNetOps; }
Table DnsTiers() { return kDnsTiers; }
Table EscapeOps() { return kEscapeOps; }
Table LifecycleOps() { return kLifecycleOps; }
Table WireKinds() { return kWireKinds; }
Table Severities() { return kSeverities; }
Table Coverages() {
    static const Name kCells[] = {
        {static_cast<uint32_t>(Cell::kPrevented), Text(Cell::kPrevented)},
        {static_cast<uint32_t>(Cell::kKilledAfterEffect), Text(Cell::kKilledAfterEffect)},
        {static_cast<uint32_t>(Cell::kSeen), Text(Cell::kSeen)},
        {static_cast<uint32_t>(Cell::kUnseen), Text(Cell::kUnseen)},
    };
    return kCells;
}

Table TableNamed(absl::string_view values) {
    static constexpr struct {
        absl::string_view name;
        Table (*table)();
    } kTables[] = {
        {"verdict", Verdicts},     {"outcome", Outcomes},      {"lock", Locks},
        {"code", Codes},           {"section", Sections},      {"backend", Backends},
        {"exec_role", ExecRoles},  {"file_op", FileOps},       {"net_op", NetOps},
        {"escape_op", EscapeOps},  {"severity", Severities},   {"coverage", Coverages},
        {"lifecycle_op", LifecycleOps}, {"dns_tier", DnsTiers},
    };
    for (const auto& row : kTables) {
        if (row.name == values) return row.table();
    }
    return {};
}

absl::string_view NameOf(Table table, uint32_t number) {
    // Most tables count from 0 or 1 without gaps: look there first.
    for (uint32_t at : {number, number - 1}) {
        if (at < table.size() && table[at].number == number) return table[at].text;
    }
    const auto row = std::lower_bound(table.begin(), table.end(), number,
                                      [](const Name& a, uint32_t b) { return a.number < b; });
    return row != table.end() && row->number == number ? row->text : absl::string_view();
}

int64_t NumberOf(Table table, absl::string_view text) {
    for (const Name& row : table) {
        if (row.text == text) return row.number;
    }
    return -1;
}

}  // namespace stockade::model
