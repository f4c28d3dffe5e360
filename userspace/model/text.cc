#include "userspace/model/text.h"

#include "userspace/model/utf8.h"

namespace stockade::model {
namespace {

void AppendHex(absl::string_view bytes, std::string* out) {
    static constexpr char kHex[] = "0123456789abcdef";
    for (unsigned char c : bytes) {
        const char escape[] = {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
        out->append(escape, sizeof(escape));
    }
}

}  // namespace

bool IsPrintable(absl::string_view bytes) {
    while (!bytes.empty()) {
        const Utf8Char c = NextChar(bytes);
        if (!c.valid || !IsPrintableChar(c.code)) return false;
        bytes.remove_prefix(c.bytes);
    }
    return true;
}

bool AppendEscaped(absl::string_view bytes, std::string* out) {
    if (IsPrintable(bytes)) {
        out->append(bytes.data(), bytes.size());
        return false;
    }
    while (!bytes.empty()) {
        const Utf8Char c = NextChar(bytes);
        const absl::string_view raw = bytes.substr(0, c.bytes);
        if (raw == "\\") {
            out->append("\\\\");
        } else if (c.valid && IsPrintableChar(c.code)) {
            out->append(raw.data(), raw.size());
        } else {
            AppendHex(raw, out);
        }
        bytes.remove_prefix(c.bytes);
    }
    return true;
}

}  // namespace stockade::model
