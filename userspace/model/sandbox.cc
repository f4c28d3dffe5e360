#include "userspace/model/sandbox.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/wall_time.h"
#include "userspace/model/text.h"

namespace stockade::model {
namespace {

constexpr absl::string_view kPrefix = "sbx_";
constexpr absl::string_view kCrockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
constexpr size_t kUlidChars = 26;

// 128 bits in 26 characters of 5: the first carries 3 bits.
std::string EncodeUlid(uint64_t unix_ms, uint64_t hi16, uint64_t lo64) {
    unsigned __int128 value = (static_cast<unsigned __int128>(unix_ms & 0xffffffffffff) << 80) |
                              (static_cast<unsigned __int128>(hi16 & 0xffff) << 64) | lo64;
    std::string text(kUlidChars, '0');
    for (size_t i = kUlidChars; i-- > 0; value >>= 5) text[i] = kCrockford[value & 31];
    return text;
}

void FillRandom(void* out, size_t bytes) {
    char* at = static_cast<char*>(out);
    while (bytes > 0) {
        const ssize_t got = getrandom(at, bytes, 0);
        // Without randomness ids could be guessed and collide: there is no way on.
        if (got < 0 && errno != EINTR) abort();
        if (got > 0) at += got, bytes -= static_cast<size_t>(got);
    }
}

Status CheckText(absl::string_view what, absl::string_view text, size_t max_bytes) {
    if (text.size() > max_bytes) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, " is ", text.size(), " bytes long, at most ", max_bytes));
    }
    if (!IsPrintable(text)) {
        return absl::InvalidArgumentError(absl::StrCat(what, " is not printable UTF-8"));
    }
    return absl::OkStatus();
}

bool IsLowerHex(absl::string_view text) {
    for (char c : text) {
        if (!absl::ascii_isdigit(c) && (c < 'a' || c > 'f')) return false;
    }
    return true;
}

// 2 - 32 - 16 - 2 hex digits, https://www.w3.org/TR/trace-context/#traceparent-header; neither
// id may be all zeros, and version ff is forbidden.
bool IsTraceparent(absl::string_view text) {
    if (text.size() != 55 || text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
    const absl::string_view trace = text.substr(3, 32), parent = text.substr(36, 16);
    return IsLowerHex(text.substr(0, 2)) && text.substr(0, 2) != "ff" && IsLowerHex(trace) &&
           IsLowerHex(parent) && IsLowerHex(text.substr(53)) &&
           trace.find_first_not_of('0') != trace.npos &&
           parent.find_first_not_of('0') != parent.npos;
}

}  // namespace

std::string NewUlid() {
    uint64_t random[2];
    FillRandom(random, sizeof(random));
    return EncodeUlid(WallAt(BootNow()) / 1'000'000, random[0], random[1]);
}

SandboxId SandboxId::New() {
    SandboxId id;
    id.text_ = absl::StrCat(kPrefix, NewUlid());
    return id;
}

SandboxId SandboxId::FromParts(uint64_t unix_ms, uint64_t random_hi16, uint64_t random_lo64) {
    SandboxId id;
    id.text_ = absl::StrCat(kPrefix, EncodeUlid(unix_ms, random_hi16, random_lo64));
    return id;
}

StatusOr<SandboxId> SandboxId::Parse(absl::string_view text) {
    const bool shaped = text.size() == kPrefix.size() + kUlidChars &&
                        text.substr(0, kPrefix.size()) == kPrefix &&
                        text.find_first_not_of(kCrockford, kPrefix.size()) == text.npos &&
                        text[kPrefix.size()] <= '7';
    if (!shaped) {
        std::string shown;
        AppendEscaped(text.substr(0, 64), &shown);
        return absl::InvalidArgumentError(
            absl::StrCat("\"", shown, "\" is no sandbox id (sbx_ and 26 characters)"));
    }
    SandboxId id;
    id.text_ = std::string(text);
    return id;
}

Status CheckLabels(const Labels& labels) {
    SK_RETURN_IF_ERROR(CheckText("label session", labels.session, kMaxLabelValueBytes));
    SK_RETURN_IF_ERROR(CheckText("label tool", labels.tool, kMaxLabelValueBytes));
    if (!labels.trace.empty() && !IsTraceparent(labels.trace)) {
        return absl::InvalidArgumentError(
            "label trace is no W3C traceparent (00-<32 hex>-<16 hex>-<2 hex>)");
    }
    if (labels.free.size() > kMaxLabels) {
        return absl::InvalidArgumentError(
            absl::StrCat(labels.free.size(), " labels, at most ", kMaxLabels));
    }
    for (const auto& [key, value] : labels.free) {
        if (key.empty()) return absl::InvalidArgumentError("a label has an empty key");
        SK_RETURN_IF_ERROR(CheckText("the key of a label", key, kMaxLabelKeyBytes));
        SK_RETURN_IF_ERROR(CheckText(absl::StrCat("label ", key), value, kMaxLabelValueBytes));
    }
    return absl::OkStatus();
}

absl::string_view ToString(SandboxState state) {
    switch (state) {
        case SandboxState::kRegistered: return "registered";
        case SandboxState::kStarting: return "starting";
        case SandboxState::kRunning: return "running";
        case SandboxState::kCondemned: return "condemned";
        case SandboxState::kEmpty: return "empty";
        case SandboxState::kDestroyed: return "destroyed";
    }
    return "unknown";
}

void ToProto(const SandboxInfo& info, v1::Sandbox* out) {
    out->set_id(info.id.str());
    out->set_session(info.labels.session);
    out->set_tool(info.labels.tool);
    out->set_trace(info.labels.trace);
    out->set_runtime(info.runtime);
    auto& labels = *out->mutable_labels();
    for (const auto& [key, value] : info.labels.free) labels[key] = value;
}

}  // namespace stockade::model
