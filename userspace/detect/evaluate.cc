#include "userspace/detect/evaluate.h"

#include <arpa/inet.h>
#include <re2/re2.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"

namespace stockade::detect {
namespace {

// Big-endian words as policy::NetworkRule has them; IPv4 in the low half of `lo`, as ParseCidr does.
bool InNetwork(const std::string& text, const policy::NetworkRule& network) {
    unsigned char bytes[16] = {};
    const int family = network.family == 4 ? AF_INET : AF_INET6;
    if (inet_pton(family, text.c_str(), bytes) != 1) return false;
    unsigned char wanted[16] = {};
    const std::string prefix = network.text.substr(0, network.text.find('/'));
    if (inet_pton(family, prefix.c_str(), wanted) != 1) return false;
    const int whole = network.bits / 8, rest = network.bits % 8;
    if (std::memcmp(bytes, wanted, static_cast<size_t>(whole)) != 0) return false;
    return rest == 0 || ((bytes[whole] ^ wanted[whole]) & (0xff00 >> rest) & 0xff) == 0;
}

int PartOf(long double seconds, TimePart part) {
    const absl::CivilSecond civil =
        absl::ToCivilSecond(absl::FromUnixSeconds(static_cast<int64_t>(seconds)), absl::UTCTimeZone());
    switch (part) {
        case TimePart::kMinute:
            return civil.minute();
        case TimePart::kHour:
            return civil.hour();
        case TimePart::kDay:
            return civil.day();
        case TimePart::kMonth:
            return civil.month();
        case TimePart::kYear:
            return static_cast<int>(civil.year());
        case TimePart::kWeek:
            break;
    }
    // ISO 8601: the week of the year that its Thursday is in.
    const absl::CivilDay day(civil);
    const absl::CivilDay thursday = day + (3 - static_cast<int>(absl::GetWeekday(day)));
    return (absl::GetYearDay(thursday) - 1) / 7 + 1;
}

Truth MatchNumber(const Predicate& atom, const FieldValue& value) {
    for (long double number : value.numbers) {
        if (Holds(atom.compare, number, atom.number)) return Truth::kYes;
    }
    if (!value.numbers.empty()) return Truth::kNo;
    Truth any = Truth::kNo;
    for (const Text& text : value.texts) {
        if (text.hole) {
            any = Or(any, Truth::kUndecidable);
            continue;
        }
        char* end = nullptr;
        const long double number = std::strtold(text.raw.c_str(), &end);
        const bool is_number = !text.raw.empty() &&
                               absl::ascii_isdigit(static_cast<unsigned char>(text.raw.back())) &&
                               *end == '\0' && text.raw.find_first_not_of("0123456789.-+") == text.raw.npos;
        any = Or(any, FromBool(is_number && Holds(atom.compare, number, atom.number)));
    }
    return any;
}

Truth MatchOther(const Predicate& atom, const FieldValue& value, const FieldValue& other) {
    if (other.state == FieldValue::State::kUnknown) return Truth::kUndecidable;
    Truth any = Truth::kNo;
    for (const Text& left : value.texts) {
        for (const Text& right : other.texts) {
            if (left.hole || right.hole) {
                any = Or(any, Truth::kUndecidable);
                continue;
            }
            const bool holds = atom.front && atom.back ? absl::StrContains(left.folded, right.folded)
                               : atom.front            ? absl::StartsWith(left.folded, right.folded)
                               : atom.back             ? absl::EndsWith(left.folded, right.folded)
                                                       : left.folded == right.folded;
            any = Or(any, FromBool(holds));
        }
    }
    return any;
}

Truth MatchText(const Predicate& atom, const Text& text) {
    switch (atom.op) {
        case Predicate::Op::kPattern:
            return atom.pattern.Match(atom.cased ? text.raw : text.folded);
        case Predicate::Op::kRegex:
            // A hole may hold what matches, and may stand between what matches now.
            return text.hole ? Truth::kUndecidable : FromBool(re2::RE2::PartialMatch(text.raw, *atom.regex));
        case Predicate::Op::kCidr:
            return text.hole ? Truth::kUndecidable : FromBool(InNetwork(text.raw, atom.network));
        default:
            return Truth::kNo;
    }
}

// Also of a field that was cut to nothing it is known that it is there.
Truth Exists(const Predicate& atom, const FieldValue& value) {
    if (atom.field->kind == Field::Kind::kUnrecorded) return Truth::kUndecidable;
    if (atom.field->empty_is_unknown && value.state == FieldValue::State::kUnknown) return Truth::kUndecidable;
    return FromBool(value.state != FieldValue::State::kAbsent);
}

}  // namespace

Truth Evaluate(const Predicate& atom, EventView& view) {
    const FieldValue& value = atom.field == nullptr ? view.Keywords() : view.Get(*atom.field);
    if (atom.op == Predicate::Op::kExists)
        return atom.exists ? Exists(atom, value) : Not(Exists(atom, value));
    if (atom.op == Predicate::Op::kNull) return Not(Exists(atom, value));
    if (value.state == FieldValue::State::kUnknown) return Truth::kUndecidable;
    if (value.state == FieldValue::State::kAbsent) return Truth::kNo;
    if (atom.op == Predicate::Op::kNumber) return MatchNumber(atom, value);
    if (atom.op == Predicate::Op::kFieldRef) return MatchOther(atom, value, view.Get(*atom.other));
    Truth any = Truth::kNo;
    if (atom.op == Predicate::Op::kTimePart) {
        for (long double number : value.numbers)
            any = Or(any, FromBool(Holds(atom.compare, PartOf(number, atom.part), atom.number)));
        return any;
    }
    for (const Text& text : value.texts) {
        any = Or(any, MatchText(atom, text));
        if (any == Truth::kYes) return any;
    }
    return any;
}

Truth Evaluate(const Expr& expr, const std::vector<Predicate>& atoms, EventView& view) {
    switch (expr.kind) {
        case Expr::Kind::kAtom:
            return Evaluate(atoms[static_cast<size_t>(expr.atom)], view);
        case Expr::Kind::kNot:
            return Not(Evaluate(expr.kids[0], atoms, view));
        case Expr::Kind::kAnd:
        case Expr::Kind::kOr:
            break;
    }
    const bool all = expr.kind == Expr::Kind::kAnd;
    Truth truth = all ? Truth::kYes : Truth::kNo;
    for (const Expr& kid : expr.kids) {
        const Truth each = Evaluate(kid, atoms, view);
        truth = all ? And(truth, each) : Or(truth, each);
    }
    return truth;
}

}  // namespace stockade::detect
