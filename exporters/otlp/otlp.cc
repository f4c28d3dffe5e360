#include "exporters/otlp/otlp.h"

#include <poll.h>

#include <algorithm>
#include <deque>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "exporters/otlp/otlp_http.h"
#include "exporters/otlp/otlp_options.h"
#include "exporters/otlp/otlp_record.h"
#include "userspace/base/clock.h"
#include "userspace/model/text.h"

namespace stockade::exporters {
namespace {

// Of one request; its bytes are bounded by the options.
constexpr size_t kMaxRecords = 1024;
// What waits here while a request is under way: as much again, in requests.
constexpr size_t kMaxRequestsWaiting = 2;
constexpr int64_t kFirstBackoffMs = 100, kMaxBackoffMs = 5000;
constexpr uint64_t kMs = 1'000'000;
// A word of a receiver that stands in the log.
constexpr size_t kMaxWords = 200;

// The receiver does not take what the request holds, whenever it comes.
bool IsAboutContent(long status) { return status == 400 || status == 413 || status == 422; }

std::string WordsOf(const HttpAnswer& answer) {
    if (answer.status == 0) return answer.error;
    otlp::Refusal refusal;
    std::string words;
    if (!answer.body.empty() && refusal.ParseFromString(answer.body))
        (void)model::AppendEscaped(absl::string_view(refusal.message()).substr(0, kMaxWords),
                                   &words);  // cut or not
    return absl::StrCat("HTTP ", answer.status, words.empty() ? "" : ": ", words);
}

class Otlp : public SpooledExporter {
  public:
    Otlp(OtlpOptions options, std::unique_ptr<OtlpHttp> http)
        : options_(std::move(options)), http_(std::move(http)) {}

    std::string name() const override { return absl::StrCat("otlp:", options_.endpoint); }
    void OnDelivered(Delivered delivered) override { delivered_ = std::move(delivered); }

    Status Send(uint64_t tag, const model::EventBytes& event, bool again) override {
        if (closed_) return absl::FailedPreconditionError("exporter otlp: closed");
        if (pending_.size() >= kMaxRequestsWaiting * kMaxRecords ||
            pending_bytes_ >= kMaxRequestsWaiting * options_.batch_bytes)
            return absl::UnavailableError("exporter otlp: enough is under way");
        SK_ASSIGN_OR_RETURN(otlp::LogRecord log, ToLogRecord(event, options_.format, WallNow()));
        Record record{.tag = tag, .node = std::string(event.node), .log = std::move(log), .bytes = 0};
        if (again) MarkAgain(&record.log);
        record.bytes = record.log.ByteSizeLong();
        pending_bytes_ += record.bytes;
        pending_.push_back(std::move(record));
        std::lock_guard lock(mutex_);
        ++counters_.accepted;
        return absl::OkStatus();
    }

    void Poll(int timeout_ms) override {
        if (!http_->busy() && !Start()) {
            (void)poll(nullptr, 0, timeout_ms);  // there is nothing to wait for but time
            return;
        }
        const std::optional<HttpAnswer> answer = http_->Poll(timeout_ms);
        if (answer) {
            OnAnswer(*answer);
            (void)Start();
        }
    }

    Status Health() const override {
        std::lock_guard lock(mutex_);
        return health_;
    }

    void Close(int timeout_ms) override {
        if (closed_) return;
        const uint64_t end = BootNow() + static_cast<uint64_t>(timeout_ms) * kMs;
        while (!pending_.empty() && BootNow() < end && wait_until_ns_ < end) Poll(10);
        closed_ = true;
        http_->Abort();
        while (!pending_.empty()) Drop(absl::AbortedError("exporter otlp: closed"));
    }

    ExporterCounters counters() const override {
        std::lock_guard lock(mutex_);
        return counters_;
    }

  private:
    struct Record {
        uint64_t tag;
        std::string node;
        otlp::LogRecord log;
        size_t bytes;
    };

    // False: there is nothing to send, or it is not the time for it.
    bool Start() {
        if (pending_.empty() || BootNow() < wait_until_ns_) return false;
        const Status sent = http_->Post(probing_ ? std::string() : Body());
        if (!sent.ok()) Wait(sent, -1);
        return sent.ok();
    }

    // The first of those that wait, as many as fit.
    std::string Body() {
        otlp::Request request;
        size_t bytes = 0;
        const size_t most = singly_ > 0 ? 1 : limit_;
        under_way_ = 0;
        otlp::ScopeLogs* scope = nullptr;
        const std::string* node = nullptr;
        for (const Record& record : pending_) {
            if (under_way_ == most || (under_way_ > 0 && bytes + record.bytes > options_.batch_bytes)) break;
            if (node == nullptr || *node != record.node) {
                node = &record.node;
                otlp::ResourceLogs* logs = request.add_resource_logs();
                *logs->mutable_resource() = ToResource(record.node);
                scope = logs->add_scope_logs();
                scope->mutable_scope()->set_name("stockade");
            }
            *scope->add_log_records() = record.log;
            bytes += record.bytes;
            ++under_way_;
        }
        return request.SerializeAsString();
    }

    void OnAnswer(const HttpAnswer& answer) {
        if (probing_) return OnProbed(answer);
        if (answer.status >= 200 && answer.status < 300) {
            otlp::Response response;
            // What cannot be read refuses nothing.
            if (response.ParseFromString(answer.body) &&
                response.partial_success().rejected_log_records() > 0)
                return OnPartial(response.partial_success().error_message());
            return OnTaken();
        }
        if (IsAboutContent(answer.status)) return OnRefused(answer);
        // Of these it may have taken some all the same.
        if (answer.status == 0 ? answer.may_have_arrived : answer.status >= 500 && answer.status != 503) {
            for (size_t i = 0; i < under_way_; ++i) MarkAgain(&pending_[i].log);
        }
        Wait(absl::UnavailableError(WordsOf(answer)), answer.retry_after_ms);
    }

    void OnTaken() {
        backoff_ms_ = 0;
        wait_until_ns_ = 0;
        Tell(absl::OkStatus());
        singly_ -= std::min(singly_, under_way_);
        limit_ = std::min(2 * limit_, kMaxRecords);
        for (; under_way_ > 0; --under_way_) Drop(absl::OkStatus());
    }

    // Some of them, and it does not say which: that a second one of the others comes, marked, is less than a loss without a number.
    void OnPartial(const std::string& message) {
        if (under_way_ > 1) {
            for (size_t i = 0; i < under_way_; ++i) MarkAgain(&pending_[i].log);
            singly_ = under_way_;
            return;
        }
        GiveUp(message);
    }

    void OnRefused(const HttpAnswer& answer) {
        refusal_ = WordsOf(answer);
        if (under_way_ > 1) {
            limit_ = under_way_ / 2;
            return;
        }
        // A wrong URL may be answered with 400 as well. So the record is given up only by a receiver that takes an empty request.
        probing_ = true;
    }

    void OnProbed(const HttpAnswer& answer) {
        probing_ = false;
        if (answer.status >= 200 && answer.status < 300) return GiveUp(refusal_);
        Wait(absl::UnavailableError(absl::StrCat(WordsOf(answer), ", also for an empty request")),
             answer.retry_after_ms);
    }

    void GiveUp(const std::string& words) {
        under_way_ = 0;
        singly_ -= std::min<size_t>(singly_, 1);
        std::string text = "the receiver refuses a record: ";
        (void)model::AppendEscaped(absl::string_view(words).substr(0, kMaxWords), &text);  // cut or not
        Drop(absl::InvalidArgumentError(text));
    }

    void Wait(const Status& status, int64_t retry_after_ms) {
        Tell(absl::UnavailableError(absl::StrCat(name(), ": ", status.message())));
        backoff_ms_ = std::clamp(2 * backoff_ms_, kFirstBackoffMs, kMaxBackoffMs);
        wait_until_ns_ = BootNow() + static_cast<uint64_t>(std::max(backoff_ms_, retry_after_ms)) * kMs;
    }

    void Tell(const Status& health) {
        std::lock_guard lock(mutex_);
        health_ = health;
    }

    // The first that waits: what became of it.
    void Drop(const Status& status) {
        const uint64_t tag = pending_.front().tag;
        {
            std::lock_guard lock(mutex_);
            counters_.delivered += status.ok();
            counters_.bytes += status.ok() ? pending_.front().bytes : 0;
            if (absl::IsInvalidArgument(status)) ++counters_.dropped["refused by the receiver"];
        }
        pending_bytes_ -= pending_.front().bytes;
        pending_.pop_front();
        delivered_(tag, status);
    }

    const OtlpOptions options_;
    const std::unique_ptr<OtlpHttp> http_;
    Delivered delivered_;
    std::deque<Record> pending_;  // the first under_way_ of them are in the request
    size_t pending_bytes_ = 0;
    size_t under_way_ = 0;
    size_t limit_ = kMaxRecords;  // of the next request
    size_t singly_ = 0;           // of the next records, each has a request of its own
    bool probing_ = false;        // the request, or the next one, is the empty one
    std::string refusal_;
    int64_t backoff_ms_ = 0;
    uint64_t wait_until_ns_ = 0;
    bool closed_ = false;
    mutable std::mutex mutex_;
    Status health_;
    ExporterCounters counters_;
};

}  // namespace

StatusOr<std::unique_ptr<SpooledExporter>> MakeOtlp(const ExporterOptions& options) {
    SK_ASSIGN_OR_RETURN(OtlpOptions parsed, ParseOtlpOptions(options));
    SK_ASSIGN_OR_RETURN(std::unique_ptr<OtlpHttp> http, OtlpHttp::Create(parsed));
    return std::unique_ptr<SpooledExporter>(std::make_unique<Otlp>(std::move(parsed), std::move(http)));
}

}  // namespace stockade::exporters
