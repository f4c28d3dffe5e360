#include "exporters/otlp/otlp_options.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"

namespace stockade::exporters {
namespace {

// A token of some cloud has two KiB; a receiver's own bound of a request's head is 8 KiB or more.
constexpr size_t kMaxHeadersBytes = 6 << 10;
constexpr int kMinTimeoutMs = 100, kMaxTimeoutMs = 300'000;
// One event must fit a request whatever the bound is; above, receivers refuse (Loki takes 4 MiB, a collector 20).
constexpr size_t kMinBatchBytes = 4 << 10, kMaxBatchBytes = 16 << 20;
// Set by us, or by the connection.
constexpr const char* kReserved[] = {"content-type", "content-length", "transfer-encoding",
                                     "connection",   "host",           "expect"};

Status Wrong(absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("exporter otlp: ", what));
}

std::string ValueOf(const ExporterOptions& options, const std::string& key, const std::string& otherwise) {
    const auto found = options.find(key);
    return found == options.end() ? otherwise : found->second;
}

// What an HTTP header's name is made of.
bool IsToken(absl::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '-' || c == '_';
    });
}

// Its values are shown nowhere.
StatusOr<std::vector<std::string>> ReadHeaders(const std::string& path) {
    SK_ASSIGN_OR_RETURN(const Fd file, Fd::Open(path, O_RDONLY));
    struct stat info{};
    if (fstat(file.get(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("look at ", path));
    if ((info.st_mode & (S_IROTH | S_IWOTH)) != 0)
        return absl::PermissionDeniedError(
            absl::StrCat(path, " may be read by everybody: chmod 600 it, for it holds secrets"));
    SK_ASSIGN_OR_RETURN(const std::string text, ReadAll(file.get(), kMaxHeadersBytes));
    std::vector<std::string> headers;
    int number = 0;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
        ++number;
        const absl::string_view stripped = absl::StripAsciiWhitespace(line);
        if (stripped.empty() || stripped.front() == '#') continue;
        const size_t colon = stripped.find(':');
        const absl::string_view name = stripped.substr(0, colon);
        const absl::string_view value =
            colon == stripped.npos ? "" : absl::StripAsciiWhitespace(stripped.substr(colon + 1));
        const bool printable =
            std::all_of(value.begin(), value.end(), [](unsigned char c) { return c >= ' ' && c != 0x7f; });
        if (colon == stripped.npos || !IsToken(name) || value.empty() || !printable)
            return Wrong(absl::StrCat(path, ":", number, ": a line is \"Name: value\""));
        for (const char* reserved : kReserved) {
            if (absl::EqualsIgnoreCase(name, reserved))
                return Wrong(absl::StrCat(path, ":", number, ": ", name, " is not yours to set"));
        }
        headers.push_back(absl::StrCat(name, ": ", value));
    }
    return headers;
}

// http(s)://host[:port]/path and nothing that could be a login: that would stand in the log.
Status CheckEndpoint(const std::string& endpoint) {
    const bool tls = absl::StartsWith(endpoint, "https://");
    if (!tls && !absl::StartsWith(endpoint, "http://"))
        return Wrong(
            "endpoint begins with http:// or https://, and has the whole path, such as "
            "http://127.0.0.1:4318/v1/logs");
    const absl::string_view rest = absl::string_view(endpoint).substr(tls ? 8 : 7);
    const absl::string_view authority = rest.substr(0, rest.find('/'));
    if (authority.empty() || authority.front() == ':') return Wrong("endpoint has no host");
    if (authority.find('@') != authority.npos) return Wrong("endpoint has a login in it: use headersfile");
    if (rest.find('/') == rest.npos)
        return Wrong("endpoint has no path: a collector's is /v1/logs, Loki's /otlp/v1/logs");
    for (const unsigned char c : endpoint) {
        if (c <= ' ' || c >= 0x7f) return Wrong("endpoint has a character that no URL has");
    }
    return absl::OkStatus();
}

Status AddTls(const ExporterOptions& options, OtlpOptions* out) {
    out->cacertfile = ValueOf(options, "cacertfile", "");
    out->certfile = ValueOf(options, "certfile", "");
    out->keyfile = ValueOf(options, "keyfile", "");
    if (out->certfile.empty() != out->keyfile.empty()) return Wrong("certfile and keyfile go together");
    for (const auto& [key, path] : {std::pair<const char*, const std::string&>{"cacertfile", out->cacertfile},
                                    {"certfile", out->certfile},
                                    {"keyfile", out->keyfile}}) {
        if (path.empty()) continue;
        if (!absl::StartsWith(out->endpoint, "https://"))
            return Wrong(absl::StrCat(key, " with an endpoint of http:// would be left unused"));
        // curl's own complaint does not say which.
        SK_RETURN_IF_ERROR(Annotate(Fd::Open(path, O_RDONLY).status(), absl::StrCat("exporter otlp: ", key)));
    }
    return absl::OkStatus();
}

}  // namespace

std::vector<std::string> OtlpOptionNames() {
    return {"batchbytes", "cacertfile",  "certfile", "endpoint",
            "format",     "headersfile", "keyfile",  "timeoutms"};
}

StatusOr<OtlpOptions> ParseOtlpOptions(const ExporterOptions& options) {
    const std::vector<std::string> names = OtlpOptionNames();
    for (const auto& [key, value] : options) {
        // The value of a name that was mistyped may be a secret: it is not shown.
        if (std::count(names.begin(), names.end(), key) == 0)
            return Wrong(absl::StrCat("no option \"", key, "\"; there are ", absl::StrJoin(names, ", ")));
    }
    OtlpOptions out;
    out.endpoint = ValueOf(options, "endpoint", "");
    if (out.endpoint.empty()) return Wrong("endpoint is missing");
    SK_RETURN_IF_ERROR(CheckEndpoint(out.endpoint));
    SK_ASSIGN_OR_RETURN(out.format, FormatNamed(ValueOf(options, "format", "json")));
    SK_RETURN_IF_ERROR(AddTls(options, &out));
    if (options.count("headersfile") > 0) {
        StatusOr<std::vector<std::string>> headers = ReadHeaders(options.at("headersfile"));
        if (!headers.ok()) return Annotate(headers.status(), "exporter otlp: headersfile");
        out.headers = *std::move(headers);
    }
    if (!absl::SimpleAtoi(ValueOf(options, "timeoutms", "10000"), &out.timeout_ms) ||
        out.timeout_ms < kMinTimeoutMs || out.timeout_ms > kMaxTimeoutMs)
        return Wrong(absl::StrCat("timeoutms is ", kMinTimeoutMs, " to ", kMaxTimeoutMs));
    if (!absl::SimpleAtoi(ValueOf(options, "batchbytes", "1048576"), &out.batch_bytes) ||
        out.batch_bytes < kMinBatchBytes || out.batch_bytes > kMaxBatchBytes)
        return Wrong(absl::StrCat("batchbytes is ", kMinBatchBytes, " to ", kMaxBatchBytes));
    return out;
}

}  // namespace stockade::exporters
