// Parts that several kinds share.
#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/decode/payload.h"
#include "userspace/model/text.h"

namespace stockade::decode {
namespace {

// Leaf first, as the record has them.
Status Split(const sk_path& path, Context& context, std::vector<absl::string_view>* out) {
    const char* bytes = reinterpret_cast<const char*>(path.bytes);
    size_t at = 0;
    out->reserve(path.components);
    while (at < path.bytes_len) {
        const size_t length = path.bytes[at++];
        if (length == 0) return context.Fail(Reason::PATH, "an empty path component");
        if (length > path.bytes_len - at) {
            return context.Fail(Reason::PATH, "a path component ends beyond the path");
        }
        out->push_back({bytes + at, length});
        at += length;
    }
    if (out->size() != path.components) {
        return context.Fail(Reason::PATH,
                            absl::StrCat("a path of ", out->size(), " components says that it has ",
                                         static_cast<int>(path.components)));
    }
    return absl::OkStatus();
}

// A component may hold a slash (memfd_create chooses its dentry's name) and must not look like
// two of them.
bool NeedsEscape(absl::string_view component) {
    return component.find('/') != component.npos || !model::IsPrintable(component);
}

// One flag speaks for the whole path: once any component is escaped, a backslash is doubled in
// every other one too.
void AppendComponent(absl::string_view component, bool escape, std::string* out) {
    if (!escape) {
        out->append(component.data(), component.size());
        return;
    }
    std::string escaped;
    const bool doubled = model::AppendEscaped(component, &escaped);
    for (char c : escaped) {
        if (c == '/') out->append("\\x2f");
        else out->append(c == '\\' && !doubled ? 2 : 1, c);
    }
}

}  // namespace

Status Context::Fail(Reason why, absl::string_view what) {
    reason = why;
    return absl::InvalidArgumentError(what);
}

StatusOr<absl::string_view> Word(model::Table table, uint32_t number, absl::string_view what,
                                 Context& context) {
    const absl::string_view word = model::NameOf(table, number);
    if (word.empty()) return context.Fail(Reason::VALUE, absl::StrCat(what, " ", number));
    return word;
}

absl::string_view CString(const char* bytes, size_t size) { return {bytes, strnlen(bytes, size)}; }

Status DecodePath(const sk_path& path, Context& context, std::string* text,
                  v1::PathDetail* detail) {
    if (path.bytes_len > SK_PATH_BYTES) {
        return context.Fail(Reason::PATH, absl::StrCat("a path of ", path.bytes_len, " bytes"));
    }
    detail->set_inode(path.inode);
    detail->set_device_major(path.device >> 20);
    detail->set_device_minor(path.device & 0xfffff);
    detail->set_truncated(path.flags & SK_PATH_TRUNCATED);
    detail->set_unreachable(path.flags & SK_PATH_UNREACHABLE);
    detail->set_deleted(path.flags & SK_PATH_DELETED);
    detail->set_unverified(path.flags & SK_PATH_ASWRITTEN);
    text->clear();
    if (path.flags & SK_PATH_ASWRITTEN) {
        const auto raw = CString(reinterpret_cast<const char*>(path.bytes), path.bytes_len);
        detail->set_escaped(model::AppendEscaped(raw, text));
        return absl::OkStatus();
    }
    if (path.components == 1 && path.bytes_len == 1 && path.bytes[0] == 0) {
        *text = absl::StrCat("pipe:[", path.inode, "]");  // as /proc shows it: a pipe's file has no name, and no other's has none
        return absl::OkStatus();
    }
    std::vector<absl::string_view> components;
    SK_RETURN_IF_ERROR(Split(path, context, &components));
    if (components.empty()) {
        // The root itself, unless nothing was found at all.
        if (path.inode != 0 && !(path.flags & SK_PATH_UNREACHABLE)) *text = "/";
        return absl::OkStatus();
    }
    const bool escape = std::any_of(components.begin(), components.end(), NeedsEscape);
    if (path.flags & SK_PATH_TRUNCATED) *text = "...";
    const bool rooted = !(path.flags & SK_PATH_UNREACHABLE);
    for (size_t i = components.size(); i-- > 0;) {
        if (rooted || !text->empty()) text->push_back('/');
        AppendComponent(components[i], escape, text);
    }
    detail->set_escaped(escape);
    return absl::OkStatus();
}

}  // namespace stockade::decode
