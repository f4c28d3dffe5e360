#include "exporters/otlp/otlp_http.h"

#include <curl/curl.h>

#include <algorithm>
#include <mutex>

#include "absl/strings/str_cat.h"

namespace stockade::exporters {
namespace {

constexpr size_t kMaxAnswerBytes = 64 << 10;
constexpr size_t kMaxHeadBytes = 16 << 10;
// Who asks for longer is asked again after so long: a receiver's wrong clock must not stop the export for days.
constexpr int64_t kMaxRetryAfterMs = 300'000;
constexpr long kConnectMs = 5000;

// More than the bound ends the request: the answer's status has come before it.
size_t OnBody(char* bytes, size_t, size_t size, void* self) {
    auto* body = static_cast<std::string*>(self);
    const size_t room = kMaxAnswerBytes - std::min(kMaxAnswerBytes, body->size());
    body->append(bytes, std::min(size, room));
    return size > room ? 0 : size;
}

size_t OnHead(char*, size_t, size_t size, void* self) {
    auto* seen = static_cast<size_t*>(self);
    *seen += size;
    return *seen > kMaxHeadBytes ? 0 : size;
}

struct Upload {
    std::string bytes;
    size_t at = 0;
};

// Not CURLOPT_POSTFIELDS: on a connection that was used before and dies curl sends these a second time by itself, and nobody would know.
// What it cannot rewind it gives back as an error.
size_t OnUpload(char* to, size_t, size_t size, void* self) {
    auto* upload = static_cast<Upload*>(self);
    const size_t some = std::min(size, upload->bytes.size() - upload->at);
    upload->bytes.copy(to, some, upload->at);
    upload->at += some;
    return some;
}

// It left, or part of it did. All before that is no connection, or one without trust.
bool MayHaveArrived(CURLcode code) {
    switch (code) {
        case CURLE_COULDNT_RESOLVE_HOST:
        case CURLE_COULDNT_RESOLVE_PROXY:
        case CURLE_COULDNT_CONNECT:
        case CURLE_SSL_CONNECT_ERROR:
        case CURLE_PEER_FAILED_VERIFICATION:
        case CURLE_SSL_CACERT_BADFILE:
        case CURLE_SSL_CERTPROBLEM:
            return false;
        default:
            return true;
    }
}

}  // namespace

struct OtlpHttp::Parts {
    CURLM* multi = nullptr;
    CURL* easy = nullptr;
    curl_slist* headers = nullptr;
    Upload request;
    std::string answer;
    size_t head_bytes = 0;
    char error[CURL_ERROR_SIZE] = "";

    ~Parts() {
        if (multi != nullptr && easy != nullptr)
            (void)curl_multi_remove_handle(multi, easy);  // not added: no harm
        curl_easy_cleanup(easy);
        (void)curl_multi_cleanup(multi);
        curl_slist_free_all(headers);
    }
};

OtlpHttp::OtlpHttp(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
OtlpHttp::~OtlpHttp() = default;

StatusOr<std::unique_ptr<OtlpHttp>> OtlpHttp::Create(const OtlpOptions& options) {
    static std::once_flag once;
    static CURLcode global = CURLE_OK;
    std::call_once(once, [] { global = curl_global_init(CURL_GLOBAL_DEFAULT); });
    auto parts = std::make_unique<Parts>();
    parts->multi = curl_multi_init();
    parts->easy = curl_easy_init();
    if (global != CURLE_OK || parts->multi == nullptr || parts->easy == nullptr)
        return absl::ResourceExhaustedError("exporter otlp: curl cannot be started");
    bool well = true;
    const auto add = [&](const std::string& header) {
        curl_slist* longer = curl_slist_append(parts->headers, header.c_str());
        well = well && longer != nullptr;
        if (longer != nullptr) parts->headers = longer;
    };
    add("Content-Type: application/x-protobuf");
    add("Expect:");  // a receiver that is not asked first answers one round trip earlier
    for (const std::string& header : options.headers) add(header);
    const auto set = [&](CURLoption option, auto value) {
        well = well && curl_easy_setopt(parts->easy, option, value) == CURLE_OK;
    };
    set(CURLOPT_URL, options.endpoint.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION,
        0L);  // a redirection is an error of the configuration, and would carry the token elsewhere
    set(CURLOPT_POST, 1L);
    set(CURLOPT_READFUNCTION, OnUpload);
    set(CURLOPT_READDATA, &parts->request);
    set(CURLOPT_HTTPHEADER, parts->headers);
    set(CURLOPT_USERAGENT, "stockaded");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(options.timeout_ms));
    set(CURLOPT_CONNECTTIMEOUT_MS, std::min(kConnectMs, static_cast<long>(options.timeout_ms)));
    set(CURLOPT_ERRORBUFFER, parts->error);
    set(CURLOPT_WRITEFUNCTION, OnBody);
    set(CURLOPT_WRITEDATA, &parts->answer);
    set(CURLOPT_HEADERFUNCTION, OnHead);
    set(CURLOPT_HEADERDATA, &parts->head_bytes);
    if (!options.cacertfile.empty()) set(CURLOPT_CAINFO, options.cacertfile.c_str());
    if (!options.certfile.empty()) set(CURLOPT_SSLCERT, options.certfile.c_str());
    if (!options.keyfile.empty()) set(CURLOPT_SSLKEY, options.keyfile.c_str());
    if (!well) return absl::InvalidArgumentError("exporter otlp: curl does not take these options");
    return std::unique_ptr<OtlpHttp>(new OtlpHttp(std::move(parts)));
}

Status OtlpHttp::Post(std::string body) {
    if (busy_) return absl::FailedPreconditionError("a request is under way");
    Parts& parts = *parts_;
    parts.request = {.bytes = std::move(body), .at = 0};
    parts.answer.clear();
    parts.head_bytes = 0;
    parts.error[0] = '\0';
    if (curl_easy_setopt(parts.easy, CURLOPT_POSTFIELDSIZE_LARGE,
                         static_cast<curl_off_t>(parts.request.bytes.size())) != CURLE_OK ||
        curl_multi_add_handle(parts.multi, parts.easy) != CURLM_OK)
        return absl::ResourceExhaustedError("exporter otlp: curl does not take the request");
    busy_ = true;
    return absl::OkStatus();
}

std::optional<HttpAnswer> OtlpHttp::Poll(int timeout_ms) {
    if (!busy_) return std::nullopt;
    for (int wait_ms : {timeout_ms, 0}) {
        int running = 0;
        if (curl_multi_perform(parts_->multi, &running) != CURLM_OK) return Finish(CURLE_SEND_ERROR);
        int left = 0;
        while (const CURLMsg* message = curl_multi_info_read(parts_->multi, &left)) {
            if (message->msg == CURLMSG_DONE) return Finish(message->data.result);
        }
        if (wait_ms > 0)
            (void)curl_multi_poll(parts_->multi, nullptr, 0, wait_ms,
                                  nullptr);  // what is ready is seen by the next perform
    }
    return std::nullopt;
}

HttpAnswer OtlpHttp::Finish(int code) {
    Parts& parts = *parts_;
    busy_ = false;
    HttpAnswer answer;
    answer.body = std::move(parts.answer);
    parts.answer.clear();
    (void)curl_easy_getinfo(parts.easy, CURLINFO_RESPONSE_CODE, &answer.status);  // stays 0
    curl_off_t after_s = 0;
    if (curl_easy_getinfo(parts.easy, CURLINFO_RETRY_AFTER, &after_s) == CURLE_OK && after_s > 0)
        answer.retry_after_ms = std::min<int64_t>(after_s, kMaxRetryAfterMs / 1000) * 1000;
    (void)curl_multi_remove_handle(parts.multi, parts.easy);
    if (code == CURLE_OK) return answer;
    // Half an answer is none, but for one that only talks too much.
    const bool too_long = code == CURLE_WRITE_ERROR && answer.body.size() >= kMaxAnswerBytes;
    if (too_long) return answer;
    answer.status = 0;
    answer.may_have_arrived = MayHaveArrived(static_cast<CURLcode>(code));
    answer.error =
        absl::StrCat(parts.error[0] != '\0' ? parts.error : curl_easy_strerror(static_cast<CURLcode>(code)));
    return answer;
}

void OtlpHttp::Abort() {
    if (!busy_) return;
    busy_ = false;
    (void)curl_multi_remove_handle(parts_->multi, parts_->easy);
}

}  // namespace stockade::exporters
