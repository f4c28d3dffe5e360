#include "userspace/policy/testing_matcher.h"

#include <string>

namespace stockade::policy {
namespace {

std::vector<std::string> Split(absl::string_view text) {
    std::vector<std::string> parts;
    std::string part;
    for (char c : text) {
        if (c != '/') {
            part.push_back(c);
        } else if (!part.empty()) {
            parts.push_back(part);
            part.clear();
        }
    }
    if (!part.empty()) parts.push_back(part);
    return parts;
}

bool Name(const char* p, const char* s) {
    if (*p == '\0') return *s == '\0';
    if (*p == '*') return Name(p + 1, s) || (*s != '\0' && Name(p, s + 1));
    if (*s == '\0') return false;
    if (*p == '?') return Name(p + 1, s + 1);
    if (*p == '\\') ++p;
    return *p == *s && Name(p + 1, s + 1);
}

bool Names(const std::vector<std::string>& p, size_t i, const std::vector<std::string>& s, size_t j) {
    if (i == p.size()) return j == s.size();
    if (p[i] == "**") return Names(p, i + 1, s, j) || (j < s.size() && Names(p, i, s, j + 1));
    return j < s.size() && Name(p[i].c_str(), s[j].c_str()) && Names(p, i + 1, s, j + 1);
}

}  // namespace

bool SlowMatch(absl::string_view pattern, absl::string_view path) {
    return Names(Split(pattern), 0, Split(path), 0);
}

uint32_t SlowVerdict(const std::vector<PathRule>& rules, uint32_t layers, absl::string_view path) {
    std::vector<uint32_t> allow(layers, 0);
    uint32_t deny = 0;
    for (const PathRule& rule : rules) {
        if (!SlowMatch(rule.pattern, path)) continue;
        allow[rule.layer] |= rule.allow;
        deny |= rule.deny;
    }
    uint32_t all = SK_OP_MASK;
    for (uint32_t layer : allow) all &= layer;
    return all | deny << SK_DENY_SHIFT;
}

}  // namespace stockade::policy
