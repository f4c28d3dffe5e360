#include "userspace/detect/text.h"

#include "absl/strings/ascii.h"
#include "userspace/model/utf8.h"

namespace stockade::detect {
namespace {

// -1 for what is no hexadecimal digit.
int HexDigit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

bool PairsEvenFirst(uint32_t code) {
    return (code >= 0x100 && code <= 0x137 && code != 0x130 && code != 0x131) ||
           (code >= 0x14a && code <= 0x177) || (code >= 0x460 && code <= 0x481) ||
           (code >= 0x48a && code <= 0x4bf) || (code >= 0x4d0 && code <= 0x52f) ||
           (code >= 0x1e00 && code <= 0x1e95) || (code >= 0x1ea0 && code <= 0x1eff);
}

bool PairsOddFirst(uint32_t code) {
    return (code >= 0x139 && code <= 0x148) || (code >= 0x179 && code <= 0x17e) ||
           (code >= 0x4c1 && code <= 0x4ce);
}

uint32_t Fold(uint32_t code) {
    if (code < 0x80) return absl::ascii_tolower(static_cast<unsigned char>(code));
    // The two letters outside ASCII that fold into it, as RE2's (?i) has them.
    if (code == 0x212a) return 'k';
    if (code == 0x17f) return 's';
    if (code == 0x178) return 0xff;
    if (code >= 0xc0 && code <= 0xde && code != 0xd7) return code + 0x20;
    if (PairsEvenFirst(code)) return code | 1;
    if (PairsOddFirst(code)) return code + (code & 1);
    if (code == 0x386) return 0x3ac;
    if (code >= 0x388 && code <= 0x38a) return code + 37;
    if (code == 0x38c) return 0x3cc;
    if (code == 0x38e || code == 0x38f) return code + 63;
    if (code >= 0x391 && code <= 0x3ab && code != 0x3a2) return code + 0x20;
    if (code == 0x3c2) return 0x3c3;
    if (code >= 0x400 && code <= 0x40f) return code + 0x50;
    if (code >= 0x410 && code <= 0x42f) return code + 0x20;
    if (code >= 0x531 && code <= 0x556) return code + 0x30;
    return code;
}

void AppendUtf8(uint32_t code, std::string* out) {
    if (code < 0x80) {
        out->push_back(static_cast<char>(code));
    } else if (code < 0x800) {
        out->push_back(static_cast<char>(0xc0 | code >> 6));
        out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
    } else {
        out->push_back(static_cast<char>(0xe0 | code >> 12));
        out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
        out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
    }
}

}  // namespace

std::string Unescape(absl::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 1 < text.size()) {
            if (text[i + 1] == '\\') {
                out.push_back('\\');
                ++i;
                continue;
            }
            const int high = i + 3 < text.size() && text[i + 1] == 'x' ? HexDigit(text[i + 2]) : -1;
            const int low = high >= 0 ? HexDigit(text[i + 3]) : -1;
            if (low >= 0) {
                out.push_back(static_cast<char>(high << 4 | low));
                i += 3;
                continue;
            }
        }
        out.push_back(text[i]);
    }
    return out;
}

std::string ToValidUtf8(absl::string_view bytes) {
    std::string out;
    out.reserve(bytes.size());
    while (!bytes.empty()) {
        const model::Utf8Char c = model::NextChar(bytes);
        if (c.valid) {
            out.append(bytes.data(), c.bytes);
        } else {
            out.append("\xef\xbf\xbd");
        }
        bytes.remove_prefix(c.bytes);
    }
    return out;
}

void AppendFolded(absl::string_view text, std::string* out) {
    const size_t start = out->size();
    out->append(text.data(), text.size());
    size_t i = start;
    for (; i < out->size() && static_cast<unsigned char>((*out)[i]) < 0x80; ++i)
        (*out)[i] = absl::ascii_tolower(static_cast<unsigned char>((*out)[i]));
    if (i == out->size()) return;
    // Beyond ASCII a folded letter may have another length.
    text.remove_prefix(i - start);
    out->resize(i);
    while (!text.empty()) {
        const model::Utf8Char c = model::NextChar(text);
        const uint32_t folded = c.valid ? Fold(c.code) : 0;
        if (!c.valid || (folded == c.code && c.bytes > 1)) {
            out->append(text.data(), c.bytes);
        } else {
            AppendUtf8(folded, out);
        }
        text.remove_prefix(c.bytes);
    }
}

std::string Folded(absl::string_view text) {
    std::string out;
    AppendFolded(text, &out);
    return out;
}

}  // namespace stockade::detect
