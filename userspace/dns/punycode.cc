#include "userspace/dns/punycode.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bpf/wire/dns_message.h"

namespace stockade::dns {
namespace {

// RFC 3492 section 5: the parameters of Punycode.
constexpr uint32_t kBase = 36, kTMin = 1, kTMax = 26, kSkew = 38, kDamp = 700, kBias = 72, kFirst = 0x80;

// One code point at the front of `text`, which is cut by it; 0 when it is no UTF-8.
uint32_t TakeCodePoint(absl::string_view& text) {
    const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    const uint8_t first = at(0);
    const size_t bytes = first < 0x80       ? 1
                         : first >> 5 == 6  ? 2
                         : first >> 4 == 14 ? 3
                         : first >> 3 == 30 ? 4
                                            : 0;
    if (bytes == 0 || bytes > text.size()) return 0;
    uint32_t point = bytes == 1 ? first : first & (0x7f >> bytes);
    for (size_t i = 1; i < bytes; ++i) {
        if (at(i) >> 6 != 2) return 0;
        point = point << 6 | (at(i) & 0x3f);
    }
    text.remove_prefix(bytes);
    return point;
}

uint32_t Adapt(uint32_t delta, uint32_t points, bool first) {
    delta = first ? delta / kDamp : delta / 2;
    delta += delta / points;
    uint32_t k = 0;
    for (; delta > ((kBase - kTMin) * kTMax) / 2; k += kBase) delta /= kBase - kTMin;
    return k + (kBase - kTMin + 1) * delta / (delta + kSkew);
}

char Digit(uint32_t value) { return static_cast<char>(value < 26 ? 'a' + value : '0' + (value - 26)); }

void AppendDelta(uint32_t delta, uint32_t bias, std::string* out) {
    uint32_t q = delta;
    for (uint32_t k = kBase;; k += kBase) {
        const uint32_t t = k <= bias ? kTMin : std::min(k - bias, kTMax);
        if (q < t) break;
        out->push_back(Digit(t + (q - t) % (kBase - t)));
        q = (q - t) / (kBase - t);
    }
    out->push_back(Digit(q));
}

StatusOr<std::string> LabelToAscii(absl::string_view label) {
    std::vector<uint32_t> points;
    std::string out = "xn--";
    for (absl::string_view rest = label; !rest.empty();) {
        points.push_back(TakeCodePoint(rest));
        if (points.back() == 0) return absl::InvalidArgumentError("not UTF-8");
        if (points.back() < kFirst) out.push_back(absl::ascii_tolower(static_cast<char>(points.back())));
    }
    // With at most 63 labels of 4 bytes nothing below can overflow 32 bits: 0x10ffff * 64 fits.
    if (points.size() > SK_DNS_LABEL_BYTES)
        return absl::InvalidArgumentError("label longer than 63 characters");
    const uint32_t basic = static_cast<uint32_t>(out.size() - 4);
    if (basic > 0) out.push_back('-');
    uint32_t n = kFirst, delta = 0, bias = kBias, handled = basic;
    while (handled < points.size()) {
        uint32_t next = UINT32_MAX;
        for (const uint32_t point : points) {
            if (point >= n) next = std::min(next, point);
        }
        delta += (next - n) * (handled + 1);
        n = next;
        for (const uint32_t point : points) {
            if (point < n) ++delta;
            if (point != n) continue;
            AppendDelta(delta, bias, &out);
            bias = Adapt(delta, handled + 1, handled == basic);
            delta = 0;
            ++handled;
        }
        ++delta;
        ++n;
    }
    if (out.size() > SK_DNS_LABEL_BYTES) return absl::InvalidArgumentError("label longer than 63 characters");
    return out;
}

bool IsAscii(absl::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < kFirst; });
}

}  // namespace

StatusOr<std::string> ToAscii(absl::string_view name) {
    std::string out;
    for (absl::string_view label : absl::StrSplit(name, '.')) {
        if (!out.empty()) out.push_back('.');
        if (IsAscii(label)) {
            absl::StrAppend(&out, absl::AsciiStrToLower(label));
            continue;
        }
        SK_ASSIGN_OR_RETURN(const std::string ascii, LabelToAscii(label));
        absl::StrAppend(&out, ascii);
    }
    return out;
}

}  // namespace stockade::dns
