// Rules as values: what a file says after it was read and checked.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "userspace/detect/fields.h"
#include "userspace/detect/pattern.h"
#include "userspace/policy/document.h"

namespace re2 {
class RE2;
}

namespace stockade::detect {

using policy::Diagnostic;
using policy::Position;

enum class Compare { kEq, kNeq, kLt, kLte, kGt, kGte };
// Empty for an unknown word. "lt", "gte" ...
std::optional<Compare> CompareNamed(absl::string_view word);
bool Holds(Compare compare, long double left, long double right);

enum class TimePart { kMinute, kHour, kDay, kWeek, kMonth, kYear };

// One question about one field (or, with none, about all texts of an event).
struct Predicate {
    enum class Op { kPattern, kRegex, kNumber, kCidr, kFieldRef, kExists, kNull, kTimePart };
    Op op = Op::kPattern;
    const Field* field = nullptr;  // null: keywords
    bool cased = false;
    Pattern pattern{};                        // kPattern; folded unless cased
    std::shared_ptr<const re2::RE2> regex{};  // kRegex
    Compare compare = Compare::kEq;           // kNumber, kTimePart
    long double number = 0;
    TimePart part = TimePart::kMinute;
    policy::NetworkRule network{};     // kCidr
    const Field* other = nullptr;      // kFieldRef
    bool front = false, back = false;  // kFieldRef: other stands at the start, at the end, both: anywhere
    bool exists = true;                // kExists
    std::string written{};             // "Image|endswith: /bash", for explanations
    Position at{};

    // Equal for predicates that ask the same.
    std::string Key() const;
};

struct Expr {
    enum class Kind { kAnd, kOr, kNot, kAtom };
    Kind kind = Kind::kAnd;
    std::vector<Expr> kids{};
    int atom = -1;       // kAtom: place in the rule's list
    std::string name{};  // of a search identifier, else empty
};

enum class Level { kInformational, kLow, kMedium, kHigh, kCritical };
absl::string_view LevelName(Level level);     // as Sigma writes it
absl::string_view SeverityName(Level level);  // as findings do

enum class ResponseAction { kAlert, kDeny, kKillProcess, kKillSandbox, kIsolateNetwork, kFreeze };
struct Response {
    ResponseAction action = ResponseAction::kAlert;
    int64_t throttle_ns = 0;  // 0: each time
    std::string once_per{};   // "", "sandbox", "session"
    bool scope_group = false;
    std::map<std::string, const Field*> deny{};  // operation -> field of the last event
    Position at{};
};
absl::string_view ActionName(ResponseAction action);

struct TestEvent {
    v1::Event event{};
    int64_t after_ns = 0;  // since the one before
    Position at{};
};
struct RuleTest {
    enum class Kind { kFires, kSilent, kUndecidable };
    Kind kind = Kind::kFires;
    std::string name{};
    std::vector<TestEvent> events{};
    std::optional<uint64_t> count{};
    std::string severity{};
    std::vector<std::string> groups{};
    Position at{};
};

struct Correlation {
    enum class Type {
        kEventCount,
        kValueCount,
        kTemporal,
        kTemporalOrdered,
        kValueSum,
        kValueAvg,
        kValuePercentile
    };
    Type type = Type::kEventCount;
    std::vector<policy::Entry> rules{};  // id or name, as written
    std::vector<std::string> group_by{};
    std::vector<std::string> fields{};  // of the condition
    int64_t timespan_ns = 0;
    std::vector<std::pair<Compare, long double>> conditions{};
    long double percentile = 0;
    // alias -> rule as written -> field name
    std::map<std::string, std::map<std::string, policy::Entry>> aliases{};
    bool generate = false;
    Position at{}, group_at{}, field_at{};
};

struct Rule {
    std::string id{}, name{}, title{}, description{}, status{}, author{};
    Level level = Level::kMedium;
    std::vector<std::string> tags{}, falsepositives{}, references{};
    Source source{};
    std::vector<Predicate> atoms{};
    Expr expr{};
    std::optional<Correlation> correlation{};
    std::optional<Response> response{};
    std::vector<RuleTest> tests{};
    std::string hash{};  // SHA-256 of the document's content
    // Names of filters that were folded in.
    std::vector<std::string> filters{};
    Position at{}, condition_at{};

    // What findings call it: its id, else its name, else its title.
    const std::string& Ident() const { return !id.empty() ? id : !name.empty() ? name : title; }
};

// A `filter:` document, before it is folded into its rules.
struct Filter {
    std::string id{}, title{};
    Source source{};
    bool any = false;
    std::vector<policy::Entry> rules{};
    std::vector<Predicate> atoms{};
    Expr expr{};
    Position at{};
};

}  // namespace stockade::detect
