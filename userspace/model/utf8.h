// Strict UTF-8, one character at a time.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace stockade::model {

struct Utf8Char {
    uint32_t code;
    uint8_t bytes;  // 1..4; 1 for a byte that starts nothing valid
    bool valid;
};

// `text` must not be empty. Overlong forms, surrogates and codes beyond U+10FFFF are invalid.
inline Utf8Char NextChar(absl::string_view text) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    const uint8_t lead = byte(0);
    if (lead < 0x80) return {lead, 1, true};
    const uint8_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {0, 1, false};
    uint32_t code = lead & (0x7f >> bytes);
    for (uint8_t i = 1; i < bytes; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return {0, 1, false};
        code = code << 6 | (byte(i) & 0x3f);
    }
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kLeast[bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        return {0, 1, false};
    }
    return {code, bytes, true};
}

// Not: control characters, line and paragraph separators, and the invisible ones that change
// the direction or the reading of what stands around them.
inline bool IsPrintableChar(uint32_t code) {
    if (code < 0x20) return false;
    if (code < 0x7f) return true;
    if (code <= 0x9f) return false;
    if (code == 0x061c || code == 0xfeff) return false;
    if (code >= 0x200b && code <= 0x200f) return false;  // zero width, direction marks
    if (code >= 0x2028 && code <= 0x202e) return false;  // separators, embeddings, overrides
    if (code >= 0x2060 && code <= 0x206f) return false;  // joiners, isolates
    if (code >= 0xfff9 && code <= 0xfffb) return false;  // interlinear annotation
    return code < 0xe0000 || code > 0xe0fff;             // tags
}

}  // namespace stockade::model
