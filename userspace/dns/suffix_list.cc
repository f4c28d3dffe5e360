#include "userspace/dns/suffix_list.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bpf/wire/dns_message.h"
#include "userspace/dns/punycode.h"

namespace stockade::dns {
namespace {

Status CheckSuffix(absl::string_view suffix) {
    if (suffix.empty() || suffix.size() >= SK_DNS_NAME_BYTES - 1)
        return absl::InvalidArgumentError("empty or too long");
    for (absl::string_view label : absl::StrSplit(suffix, '.')) {
        if (label.empty() || label.size() > SK_DNS_LABEL_BYTES)
            return absl::InvalidArgumentError(absl::StrCat("label of ", label.size(), " bytes"));
        const auto plain = [](char c) { return sk_dns_is_plain(static_cast<uint8_t>(c)) != 0; };
        if (!std::all_of(label.begin(), label.end(), plain))
            return absl::InvalidArgumentError("a character that no host name has");
    }
    return absl::OkStatus();
}

// Start of the label before the one that starts at `at`; npos when that was the first.
size_t LabelBefore(absl::string_view name, size_t at) {
    if (at == 0) return absl::string_view::npos;
    const size_t dot = at >= 2 ? name.rfind('.', at - 2) : absl::string_view::npos;
    return dot == absl::string_view::npos ? 0 : dot + 1;
}

}  // namespace

Status SuffixList::AddRule(absl::string_view rule, bool is_private) {
    uint8_t flag = is_private ? kSuffixPrivate : kSuffixIcann;
    if (absl::ConsumePrefix(&rule, "!")) {
        flag = kException;
    } else if (absl::ConsumePrefix(&rule, "*.")) {
        flag = is_private ? kWildcardPrivate : kWildcardIcann;
    }
    SK_ASSIGN_OR_RETURN(const std::string suffix, ToAscii(rule));
    SK_RETURN_IF_ERROR(CheckSuffix(suffix));
    uint8_t& flags = rules_[suffix];
    if (flags & flag) return absl::InvalidArgumentError("the rule stands there already");
    flags |= flag;
    const size_t labels = 1 + static_cast<size_t>(std::count(suffix.begin(), suffix.end(), '.'));
    max_labels_ = std::max(max_labels_, labels);
    return absl::OkStatus();
}

StatusOr<SuffixList> SuffixList::Parse(absl::string_view text, size_t min_rules) {
    SuffixList list;
    enum { kNone, kIcann, kPrivate } section = kNone;
    size_t line_number = 0, rules[3] = {};
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
        ++line_number;
        const auto error = [&](absl::string_view what) {
            return absl::InvalidArgumentError(
                absl::StrCat("public suffix list, line ", line_number, ": ", what));
        };
        if (absl::StartsWith(line, "// ===BEGIN ICANN DOMAINS===")) section = kIcann;
        if (absl::StartsWith(line, "// ===BEGIN PRIVATE DOMAINS===")) section = kPrivate;
        if (absl::StartsWith(line, "// ===END")) section = kNone;
        if (absl::StartsWith(line, "//")) continue;
        // The format: a rule ends at the first white space.
        const absl::string_view rule = line.substr(0, line.find_first_of(" \t\r"));
        if (rule.empty()) continue;
        if (section == kNone) return error("a rule outside the ICANN and private sections");
        if (const Status added = list.AddRule(rule, section == kPrivate); !added.ok())
            return error(added.message());
        ++rules[section];
    }
    if (rules[kIcann] == 0 || rules[kPrivate] == 0)
        return absl::InvalidArgumentError("public suffix list: the ICANN or the private section is missing");
    if (rules[kIcann] + rules[kPrivate] < min_rules) {
        return absl::InvalidArgumentError(
            absl::StrCat("public suffix list: ", rules[kIcann] + rules[kPrivate], " rules, at least ",
                         min_rules, " expected: was it cut?"));
    }
    return list;
}

Zone SuffixList::Find(absl::string_view name) const {
    Zone zone;
    // Starts of the labels met so far, from the right: the current one and the one to its left are
    // all that a rule can be about.
    size_t all = absl::string_view::npos, icann = absl::string_view::npos;  // where the suffix starts
    size_t at = name.size() + 1, labels = 0;
    while (labels <= max_labels_ && (at = LabelBefore(name, at)) != absl::string_view::npos) {
        const absl::string_view suffix = name.substr(at);
        if (++labels == 1) all = icann = at;  // the implicit rule "*"
        const auto found = rules_.find(suffix);
        if (found == rules_.end()) continue;
        const uint8_t flags = found->second;
        if (flags & kException) {
            // Beats every other rule: the suffix is one label shorter.
            all = icann = std::min(name.size(), name.find('.', at) + 1);
            break;
        }
        zone.known |= labels == 1;
        if (flags & kSuffixIcann) icann = all = at;
        if (flags & kSuffixPrivate) all = at;
        const size_t below = LabelBefore(name, at);
        if (below == absl::string_view::npos) continue;
        if (flags & kWildcardIcann) icann = all = below;
        if (flags & kWildcardPrivate) all = below;
    }
    const auto registered = [&](size_t suffix) {
        const size_t start = suffix == absl::string_view::npos ? suffix : LabelBefore(name, suffix);
        return start == absl::string_view::npos ? absl::string_view() : name.substr(start);
    };
    zone.icann = registered(icann);
    zone.registered = registered(all);
    return zone;
}

void SuffixList::ForEach(absl::FunctionRef<void(absl::string_view, uint8_t)> visit) const {
    for (const auto& [suffix, flags] : rules_) visit(suffix, flags);
}

}  // namespace stockade::dns
