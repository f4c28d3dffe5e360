#include "exporters/kafka/kafka.h"

#include <librdkafka/rdkafka.h>

#include <mutex>

#include "absl/strings/str_cat.h"
#include "exporters/kafka/kafka_options.h"

namespace stockade::exporters {
namespace {

// Fixed: what makes it lossless and ordered. A message waits in the queue until it is delivered, however
// long the broker is away; what the queue does not hold waits in the spool.
constexpr struct {
    const char* name;
    const char* value;
} kFixed[] = {
    {"enable.idempotence", "true"},
    {"acks", "all"},
    {"message.timeout.ms", "0"},
    {"linger.ms", "20"},
    // A broker that is back is used within half a second.
    {"reconnect.backoff.ms", "50"},
    {"reconnect.backoff.max.ms", "500"},
    // How long a topic that is not there may be about to be made.
    {"topic.metadata.propagation.max.ms", "2000"},
    {"partitioner", "murmur2_random"},  // Java's: other producers of the same session agree with us
    {"queue.buffering.max.messages", "100000"},
    {"log_level", "0"},
};

using KafkaPtr = std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)>;
using ConfPtr = std::unique_ptr<rd_kafka_conf_t, decltype(&rd_kafka_conf_destroy)>;

Status ToStatus(rd_kafka_resp_err_t error) {
    const std::string text = absl::StrCat(rd_kafka_err2name(error), ": ", rd_kafka_err2str(error));
    switch (error) {
        case RD_KAFKA_RESP_ERR_NO_ERROR:
            return absl::OkStatus();
        case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
        case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
        case RD_KAFKA_RESP_ERR_INVALID_MSG:
        case RD_KAFKA_RESP_ERR_INVALID_RECORD:
            return absl::InvalidArgumentError(text);
        case RD_KAFKA_RESP_ERR__PURGE_QUEUE:
        case RD_KAFKA_RESP_ERR__PURGE_INFLIGHT:
        case RD_KAFKA_RESP_ERR__FATAL:
            return absl::AbortedError(text);
        default:
            return absl::UnavailableError(text);
    }
}

// The reason of a drop, as counters name it: few words, whatever the peer says.
const char* ReasonOf(const Status& status) {
    if (absl::IsInvalidArgument(status)) return "refused by the broker";
    return absl::IsAborted(status) ? "closed" : "not delivered";
}

class Kafka : public SpooledExporter {
  public:
    explicit Kafka(KafkaOptions options) : options_(std::move(options)) {}
    ~Kafka() override { Close(0); }

    Status Start() {
        char error[512];
        ConfPtr conf(rd_kafka_conf_new(), rd_kafka_conf_destroy);
        const auto set = [&](const std::string& name, const std::string& value) {
            if (rd_kafka_conf_set(conf.get(), name.c_str(), value.c_str(), error, sizeof(error)) ==
                RD_KAFKA_CONF_OK)
                return absl::OkStatus();
            return absl::InvalidArgumentError(absl::StrCat("exporter kafka: ", name, ": ", error));
        };
        for (const auto& row : kFixed) SK_RETURN_IF_ERROR(set(row.name, row.value));
        for (const auto& [name, value] : options_.settings) SK_RETURN_IF_ERROR(set(name, value));
        rd_kafka_conf_set_opaque(conf.get(), this);
        rd_kafka_conf_set_dr_msg_cb(conf.get(),
                                    [](rd_kafka_t*, const rd_kafka_message_t* message, void* self) {
                                        static_cast<Kafka*>(self)->OnReport(*message);
                                    });
        rd_kafka_conf_set_error_cb(conf.get(), [](rd_kafka_t*, int code, const char* reason, void* self) {
            static_cast<Kafka*>(self)->Complain(static_cast<rd_kafka_resp_err_t>(code), reason);
        });
        kafka_.reset(rd_kafka_new(RD_KAFKA_PRODUCER, conf.get(), error, sizeof(error)));
        if (!kafka_) return absl::InvalidArgumentError(absl::StrCat("exporter kafka: ", error));
        (void)conf.release();  // the producer's now
        return absl::OkStatus();
    }

    std::string name() const override { return absl::StrCat("kafka:", options_.hostport); }
    void OnDelivered(Delivered delivered) override { delivered_ = std::move(delivered); }

    Status Send(uint64_t tag, const model::EventBytes& event, bool again) override {
        char text[256];
        if (!kafka_) return absl::FailedPreconditionError("exporter kafka: closed");
        if (const auto fatal = rd_kafka_fatal_error(kafka_.get(), text, sizeof(text));
            fatal != RD_KAFKA_RESP_ERR_NO_ERROR) {
            return absl::FailedPreconditionError(
                absl::StrCat("exporter kafka: ", rd_kafka_err2name(fatal), ": ", text));
        }
        body_.clear();
        SK_RETURN_IF_ERROR(AppendAs(options_.format, event, &body_));
        const absl::string_view key = KeyOf(event);
        const std::string& topic = options_.topics.find(ClassOf(event))->second;  // each class has one
        rd_kafka_headers_t* headers = HeadersOf(event, again);
        const rd_kafka_resp_err_t error = rd_kafka_producev(
            kafka_.get(), RD_KAFKA_V_TOPIC(topic.c_str()), RD_KAFKA_V_KEY(key.data(), key.size()),
            RD_KAFKA_V_VALUE(body_.data(), body_.size()), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
            RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(reinterpret_cast<void*>(tag)), RD_KAFKA_V_END);
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR) rd_kafka_headers_destroy(headers);  // not taken
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
            std::lock_guard lock(mutex_);
            ++counters_.accepted;
            return absl::OkStatus();
        }
        if (error == RD_KAFKA_RESP_ERR__QUEUE_FULL)
            return absl::UnavailableError("exporter kafka: the queue is full");
        const Status status = ToStatus(error);
        Complain(error, status.message().data());
        if (absl::IsInvalidArgument(status)) {
            std::lock_guard lock(mutex_);
            ++counters_.dropped[ReasonOf(status)];
        }
        return status;
    }

    void Poll(int timeout_ms) override {
        if (kafka_) (void)rd_kafka_poll(kafka_.get(), timeout_ms);  // how many were served, which nobody asks
    }

    Status Health() const override {
        std::lock_guard lock(mutex_);
        return health_;
    }

    void Close(int timeout_ms) override {
        if (!kafka_) return;
        (void)rd_kafka_flush(kafka_.get(), timeout_ms);  // what is left is told as purged
        (void)rd_kafka_purge(kafka_.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
        (void)rd_kafka_poll(kafka_.get(), 0);
        kafka_.reset();
    }

    ExporterCounters counters() const override {
        std::lock_guard lock(mutex_);
        return counters_;
    }

  private:
    rd_kafka_headers_t* HeadersOf(const model::EventBytes& event, bool again) {
        rd_kafka_headers_t* headers = rd_kafka_headers_new(10);
        for (const auto& [name, value] : CloudEventHeaders(event, options_.format)) {
            (void)rd_kafka_header_add(headers, name.data(), static_cast<ssize_t>(name.size()), value.data(),
                                      static_cast<ssize_t>(value.size()));
        }
        if (again) (void)rd_kafka_header_add(headers, "stockade-again", -1, "true", -1);
        return headers;
    }

    // On the thread that polls.
    void OnReport(const rd_kafka_message_t& message) {
        const Status status = ToStatus(message.err);
        {
            std::lock_guard lock(mutex_);
            if (status.ok()) {
                ++counters_.delivered;
                counters_.bytes += message.len;
                health_ = absl::OkStatus();
            } else {
                health_ = status;
                if (absl::IsInvalidArgument(status)) ++counters_.dropped[ReasonOf(status)];
            }
        }
        if (delivered_) delivered_(reinterpret_cast<uint64_t>(message._private), status);
    }

    void Complain(rd_kafka_resp_err_t error, const char* reason) {
        std::lock_guard lock(mutex_);
        health_ = absl::UnavailableError(absl::StrCat(name(), ": ", rd_kafka_err2name(error), ": ", reason));
    }

    const KafkaOptions options_;
    KafkaPtr kafka_{nullptr, rd_kafka_destroy};
    Delivered delivered_;
    std::string body_;
    mutable std::mutex mutex_;
    ExporterCounters counters_;
    Status health_;
};

}  // namespace

StatusOr<std::unique_ptr<SpooledExporter>> MakeKafka(const ExporterOptions& options) {
    SK_ASSIGN_OR_RETURN(KafkaOptions parsed, ParseKafkaOptions(options));
    auto kafka = std::make_unique<Kafka>(std::move(parsed));
    SK_RETURN_IF_ERROR(kafka->Start());
    return std::unique_ptr<SpooledExporter>(std::move(kafka));
}

}  // namespace stockade::exporters
