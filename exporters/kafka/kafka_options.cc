#include "exporters/kafka/kafka_options.h"

#include <fcntl.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "userspace/base/fd.h"

namespace stockade::exporters {
namespace {

constexpr size_t kMaxPasswordBytes = 4096;
// librdkafka's bounds of queue.buffering.max.kbytes are wider; this is memory of the agent.
constexpr uint64_t kMinQueueBytes = 64 << 10;
constexpr uint64_t kMaxQueueBytes = 1 << 30;

// Name here, name in librdkafka, words that are allowed (none = any).
struct Row {
    const char* name;
    const char* setting;
    std::vector<std::string> words;
};
const std::vector<Row>& Rows() {
    static const auto* const rows = new std::vector<Row>{
        {"hostport", "bootstrap.servers", {}},
        {"clientid", "client.id", {}},
        {"compression", "compression.codec", {"none", "gzip", "snappy", "lz4", "zstd"}},
        {"cacertfile", "ssl.ca.location", {}},
        {"certfile", "ssl.certificate.location", {}},
        {"keyfile", "ssl.key.location", {}},
        {"sasl", "sasl.mechanisms", {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}},
        {"username", "sasl.username", {}},
        {"password", "sasl.password", {}},
    };
    return *rows;
}

const std::vector<std::string>& OtherNames() {
    static const auto* const names =
        new std::vector<std::string>{"topic", "format", "tls", "passwordfile", "queuebytes"};
    return *names;
}

Status Wrong(absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("exporter kafka: ", what));
}

bool IsTopic(absl::string_view name) {
    // Kafka's own rule.
    return !name.empty() && name.size() <= 249 && name != "." && name != ".." &&
           std::all_of(name.begin(), name.end(), [](char c) {
               return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
           });
}

Status CheckName(const std::string& key) {
    const bool row = std::any_of(Rows().begin(), Rows().end(), [&](const Row& r) { return key == r.name; });
    const bool other = std::count(OtherNames().begin(), OtherNames().end(), key) > 0;
    const std::vector<absl::string_view> classes = Classes();
    const bool topic =
        absl::StartsWith(key, "topic.") && std::count(classes.begin(), classes.end(), key.substr(6)) > 0;
    if (row || other || topic) return absl::OkStatus();
    // The value of a name that was mistyped may be a password: it is not shown.
    return Wrong(absl::StrCat("no option \"", key, "\"; there are ", absl::StrJoin(KafkaOptionNames(), ", ")));
}

std::string ValueOf(const ExporterOptions& options, const std::string& key, const std::string& otherwise) {
    const auto found = options.find(key);
    return found == options.end() ? otherwise : found->second;
}

Status AddTopics(const ExporterOptions& options, KafkaOptions* out) {
    const std::string prefix = ValueOf(options, "topic", "stockade");
    for (const absl::string_view name : Classes()) {
        const std::string topic =
            ValueOf(options, absl::StrCat("topic.", name), absl::StrCat(prefix, ".", name));
        if (!IsTopic(topic)) return Wrong(absl::StrCat("\"", topic, "\" is no name of a topic"));
        out->topics[std::string(name)] = topic;
    }
    return absl::OkStatus();
}

Status AddSecurity(const ExporterOptions& options, KafkaOptions* out) {
    const std::string tls = ValueOf(options, "tls", "false");
    if (tls != "true" && tls != "false") return Wrong("tls is true or false");
    const bool sasl = options.count("sasl") > 0;
    for (const char* key : {"cacertfile", "certfile", "keyfile"}) {
        if (tls == "false" && options.count(key) > 0)
            return Wrong(absl::StrCat(key, " without tls: true would be left unused"));
    }
    if (options.count("certfile") != options.count("keyfile"))
        return Wrong("certfile and keyfile go together");
    for (const char* key : {"cacertfile", "certfile", "keyfile"}) {
        // librdkafka's own complaint does not say which.
        if (options.count(key) > 0)
            SK_RETURN_IF_ERROR(Annotate(Fd::Open(options.at(key), O_RDONLY).status(),
                                        absl::StrCat("exporter kafka: ", key)));
    }
    if (options.count("password") + options.count("passwordfile") > 1)
        return Wrong("either password or passwordfile");
    const bool password = options.count("password") + options.count("passwordfile") > 0;
    if (sasl != (options.count("username") > 0 && password))
        return Wrong("sasl, username and password go together");
    if (options.count("passwordfile") > 0) {
        SK_ASSIGN_OR_RETURN(const std::string content,
                            ReadFile(options.at("passwordfile"), kMaxPasswordBytes));
        out->settings.emplace_back("sasl.password", std::string(absl::StripSuffix(content, "\n")));
    }
    out->settings.emplace_back("security.protocol", sasl ? (tls == "true" ? "SASL_SSL" : "SASL_PLAINTEXT")
                                                         : (tls == "true" ? "SSL" : "PLAINTEXT"));
    return absl::OkStatus();
}

}  // namespace

std::vector<std::string> KafkaOptionNames() {
    std::vector<std::string> names = OtherNames();
    for (const Row& row : Rows()) names.emplace_back(row.name);
    for (const absl::string_view name : Classes()) names.push_back(absl::StrCat("topic.", name));
    std::sort(names.begin(), names.end());
    return names;
}

StatusOr<KafkaOptions> ParseKafkaOptions(const ExporterOptions& options) {
    KafkaOptions out;
    for (const auto& [key, value] : options) SK_RETURN_IF_ERROR(CheckName(key));
    for (const Row& row : Rows()) {
        const auto found = options.find(row.name);
        if (found == options.end()) continue;
        if (!row.words.empty() && std::count(row.words.begin(), row.words.end(), found->second) == 0) {
            return Wrong(absl::StrCat(row.name, " is one of ", absl::StrJoin(row.words, ", ")));
        }
        out.settings.emplace_back(row.setting, found->second);
    }
    out.hostport = ValueOf(options, "hostport", "");
    if (out.hostport.empty()) return Wrong("hostport is missing");
    SK_ASSIGN_OR_RETURN(out.format, FormatNamed(ValueOf(options, "format", "json")));
    SK_RETURN_IF_ERROR(AddTopics(options, &out));
    SK_RETURN_IF_ERROR(AddSecurity(options, &out));
    uint64_t bytes = 0;
    if (!absl::SimpleAtoi(ValueOf(options, "queuebytes", "16777216"), &bytes) || bytes < kMinQueueBytes ||
        bytes > kMaxQueueBytes) {
        return Wrong(absl::StrCat("queuebytes is ", kMinQueueBytes, " to ", kMaxQueueBytes));
    }
    out.settings.emplace_back("queue.buffering.max.kbytes", absl::StrCat(bytes >> 10));
    if (options.count("compression") == 0) out.settings.emplace_back("compression.codec", "zstd");
    if (options.count("clientid") == 0) out.settings.emplace_back("client.id", "stockade");
    return out;
}

}  // namespace stockade::exporters
