#include "userspace/detect/encodings.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "userspace/model/utf8.h"

namespace stockade::detect {
namespace {

constexpr const char* kDashes[] = {"-", "/", "\u2013", "\u2014", "\u2015"};

void AppendUnit(uint32_t unit, bool big_endian, std::string* out) {
    const char low = static_cast<char>(unit & 0xff), high = static_cast<char>(unit >> 8);
    out->push_back(big_endian ? high : low);
    out->push_back(big_endian ? low : high);
}

// Letters beyond ASCII count as such: no dash stands between two of a word.
bool IsWord(unsigned char c) { return absl::ascii_isalnum(c) || c == '_' || c >= 0x80; }

bool BeginsWord(const std::string& text, size_t at) {
    return (text[at] == '-' || text[at] == '/') && (at == 0 || !IsWord(text[at - 1])) &&
           at + 1 < text.size() && IsWord(text[at + 1]);
}

}  // namespace

std::string ToBase64(absl::string_view bytes) { return absl::Base64Escape(bytes); }

std::array<std::string, 3> Base64Offsets(absl::string_view bytes) {
    std::array<std::string, 3> out;
    for (size_t offset = 0; offset < 3; ++offset) {
        const std::string whole = absl::Base64Escape(absl::StrCat(std::string(offset, ' '), bytes));
        // Six bits a character: those that hold bits of a neighbour, or padding, are not certain.
        const size_t first = (offset * 8 + 5) / 6;
        const size_t last = (offset + bytes.size()) * 8 / 6;
        if (last > first) out[offset] = whole.substr(first, last - first);
    }
    return out;
}

std::string ToUtf16(absl::string_view text, bool big_endian, bool mark) {
    std::string out;
    if (mark) out = "\xff\xfe";
    while (!text.empty()) {
        const model::Utf8Char c = model::NextChar(text);
        if (c.code >= 0x10000) {
            AppendUnit(0xd800 + ((c.code - 0x10000) >> 10), big_endian, &out);
            AppendUnit(0xdc00 + ((c.code - 0x10000) & 0x3ff), big_endian, &out);
        } else {
            AppendUnit(c.code, big_endian, &out);
        }
        text.remove_prefix(c.bytes);
    }
    return out;
}

bool AddDashes(const Pattern& pattern, size_t most, std::vector<Pattern>* out) {
    std::vector<std::vector<Pattern::Part>> variants(1);
    size_t dashes = 0;
    for (const Pattern::Part& part : pattern.parts()) {
        std::vector<std::string> texts(1);
        for (size_t i = 0; i < part.text.size(); ++i) {
            if (!BeginsWord(part.text, i)) {
                for (std::string& text : texts) text += part.text[i];
                continue;
            }
            if (++dashes > most) return false;
            std::vector<std::string> more;
            for (const std::string& text : texts) {
                for (const char* dash : kDashes) more.push_back(text + dash);
            }
            texts = std::move(more);
        }
        std::vector<std::vector<Pattern::Part>> next;
        for (const auto& variant : variants) {
            for (const std::string& text : texts) {
                next.push_back(variant);
                next.back().push_back({part.piece, text});
            }
        }
        variants = std::move(next);
    }
    for (auto& variant : variants) out->push_back(Pattern(std::move(variant)));
    return true;
}

}  // namespace stockade::detect
