#include "exporters/kafka/kafka_topics.h"

#include <librdkafka/rdkafka.h>

#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "exporters/kafka/kafka_options.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"

namespace stockade::exporters {
namespace {

constexpr uint64_t kStuckNs = 30'000'000'000;  // without an answer, or a message
constexpr int kAskMs = 2'000;                  // one try: a login that is refused is known before
constexpr int kPollMs = 200;
// No more than a write or two of text waits in memory.
constexpr size_t kPrintBytes = 256 << 10;

// Fixed: all that is there, once, and the word when a partition is at its end.
constexpr struct {
    const char* name;
    const char* value;
} kFixed[] = {
    {"group.id", "stockade-verify"},  // wanted by the client; nothing of it reaches the broker
    {"enable.auto.commit", "false"},
    {"enable.partition.eof", "true"},
    {"auto.offset.reset", "error"},
    {"isolation.level", "read_uncommitted"},
    {"check.crcs", "true"},
    {"queued.max.messages.kbytes", "16384"},
    {"reconnect.backoff.max.ms", "500"},
    {"log_level", "0"},
};
// Of options that a consumer does not have.
bool IsProducers(absl::string_view setting) {
    return setting == "compression.codec" || setting == "queue.buffering.max.kbytes";
}

using KafkaPtr = std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)>;
using ConfPtr = std::unique_ptr<rd_kafka_conf_t, decltype(&rd_kafka_conf_destroy)>;
using MessagePtr = std::unique_ptr<rd_kafka_message_t, decltype(&rd_kafka_message_destroy)>;
using ListPtr =
    std::unique_ptr<rd_kafka_topic_partition_list_t, decltype(&rd_kafka_topic_partition_list_destroy)>;

std::string Named(rd_kafka_resp_err_t error) {
    return absl::StrCat(rd_kafka_err2name(error), ": ", rd_kafka_err2str(error));
}

class Reader {
  public:
    explicit Reader(KafkaOptions options) : options_(std::move(options)) {}

    Status Start() {
        char error[512];
        ConfPtr conf(rd_kafka_conf_new(), rd_kafka_conf_destroy);
        const auto set = [&](const std::string& name, const std::string& value) {
            if (rd_kafka_conf_set(conf.get(), name.c_str(), value.c_str(), error, sizeof(error)) == RD_KAFKA_CONF_OK)
                return absl::OkStatus();
            return absl::InvalidArgumentError(absl::StrCat("kafka: ", name, ": ", error));
        };
        for (const auto& row : kFixed) SK_RETURN_IF_ERROR(set(row.name, row.value));
        for (const auto& [name, value] : options_.settings) {
            if (!IsProducers(name)) SK_RETURN_IF_ERROR(set(name, value));
        }
        rd_kafka_conf_set_opaque(conf.get(), this);
        rd_kafka_conf_set_error_cb(conf.get(), [](rd_kafka_t*, int code, const char* reason, void* self) {
            static_cast<Reader*>(self)->Complain(static_cast<rd_kafka_resp_err_t>(code), reason);
        });
        kafka_.reset(rd_kafka_new(RD_KAFKA_CONSUMER, conf.get(), error, sizeof(error)));
        if (!kafka_) return absl::InvalidArgumentError(absl::StrCat("kafka: ", error));
        (void)conf.release();  // the consumer's now
        (void)rd_kafka_poll_set_consumer(kafka_.get());
        return absl::OkStatus();
    }

    Status Read(const TopicSink& sink) {
        std::set<std::string> topics;  // classes may share one
        for (const auto& [name, topic] : options_.topics) topics.insert(topic);
        for (const std::string& topic : topics) {
            SK_ASSIGN_OR_RETURN(const int partitions, PartitionsOf(topic));
            for (int i = 0; i < partitions; ++i) SK_RETURN_IF_ERROR(ReadPartition(topic, i, sink));
        }
        return absl::OkStatus();
    }

  private:
    void Complain(rd_kafka_resp_err_t error, const char* reason) {
        complaint_ = absl::StrCat(rd_kafka_err2name(error), ": ", reason);
        hopeless_ |= error == RD_KAFKA_RESP_ERR__AUTHENTICATION || error == RD_KAFKA_RESP_ERR__SSL;
    }

    // A broker that is starting, or has just made the topic, has an answer in a moment.
    rd_kafka_resp_err_t Ask(const std::function<rd_kafka_resp_err_t()>& ask) {
        for (const uint64_t begin = BootNow();;) {
            const rd_kafka_resp_err_t error = ask();
            if (error == RD_KAFKA_RESP_ERR_NO_ERROR || error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) return error;
            (void)rd_kafka_poll(kafka_.get(), kPollMs);  // takes what the client complains of
            if (hopeless_ || BootNow() - begin > kStuckNs) return error;
        }
    }

    Status Unavailable(absl::string_view what, rd_kafka_resp_err_t error) const {
        return absl::UnavailableError(absl::StrCat("kafka: ", options_.hostport, ": ", what, ": ",
                                                   complaint_.empty() ? Named(error) : complaint_));
    }

    StatusOr<int> PartitionsOf(const std::string& topic) {
        const rd_kafka_metadata_t* metadata = nullptr;
        rd_kafka_topic_t* handle = rd_kafka_topic_new(kafka_.get(), topic.c_str(), nullptr);
        const auto error = Ask([&] { return rd_kafka_metadata(kafka_.get(), 0, handle, &metadata, kAskMs); });
        if (handle) rd_kafka_topic_destroy(handle);
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return Unavailable(absl::StrCat("ask for ", topic), error);
        const std::unique_ptr<const rd_kafka_metadata_t, decltype(&rd_kafka_metadata_destroy)> owner(
            metadata, rd_kafka_metadata_destroy);
        if (metadata->topic_cnt != 1 || metadata->topics[0].err != RD_KAFKA_RESP_ERR_NO_ERROR ||
            metadata->topics[0].partition_cnt == 0) {
            const auto why = metadata->topic_cnt == 1 && metadata->topics[0].err != RD_KAFKA_RESP_ERR_NO_ERROR
                                 ? metadata->topics[0].err
                                 : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
            return absl::NotFoundError(absl::StrCat("kafka: topic ", topic, ": ", Named(why)));
        }
        return metadata->topics[0].partition_cnt;
    }

    // To its end of now: what is added meanwhile is somebody else's verdict.
    Status ReadPartition(const std::string& topic, int partition, const TopicSink& sink) {
        const std::string what = absl::StrCat("read ", topic, " ", partition);
        int64_t lowest = 0, end = 0;
        const auto asked = Ask([&] {
            return rd_kafka_query_watermark_offsets(kafka_.get(), topic.c_str(), partition, &lowest, &end, kAskMs);
        });
        if (asked != RD_KAFKA_RESP_ERR_NO_ERROR) return Unavailable(what, asked);
        SK_RETURN_IF_ERROR(sink.partition(topic, partition, lowest));
        if (lowest >= end) return absl::OkStatus();
        const ListPtr list(rd_kafka_topic_partition_list_new(1), rd_kafka_topic_partition_list_destroy);
        rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), partition)->offset = lowest;
        if (const auto error = rd_kafka_assign(kafka_.get(), list.get()); error != RD_KAFKA_RESP_ERR_NO_ERROR)
            return Unavailable(what, error);
        for (uint64_t last_ns = BootNow(); BootNow() - last_ns < kStuckNs;) {
            const MessagePtr message(rd_kafka_consumer_poll(kafka_.get(), kPollMs), rd_kafka_message_destroy);
            if (!message) continue;
            if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) return absl::OkStatus();
            // Others are of a broker that is away, and tried again by the client.
            if (message->err == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE || message->err == RD_KAFKA_RESP_ERR__BAD_MSG ||
                message->err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET)
                return Unavailable(what, message->err);
            if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) continue;
            last_ns = BootNow();
            SK_RETURN_IF_ERROR(sink.message({static_cast<const char*>(message->payload), message->len}));
            if (message->offset + 1 >= end) return absl::OkStatus();
        }
        return Unavailable(what, RD_KAFKA_RESP_ERR__TIMED_OUT);
    }

    const KafkaOptions options_;
    std::string complaint_;  // the client's last
    bool hopeless_ = false;  // it will not become better by waiting
    KafkaPtr kafka_{nullptr, rd_kafka_destroy};
};

}  // namespace

Status ReadTopics(const ExporterOptions& options, const TopicSink& sink) {
    SK_ASSIGN_OR_RETURN(KafkaOptions parsed, ParseKafkaOptions(options));
    Reader reader(std::move(parsed));
    SK_RETURN_IF_ERROR(reader.Start());
    return reader.Read(sink);
}

Status PrintTopics(const std::vector<std::string>& words, int fd) {
    ExporterOptions options;
    for (const std::string& word : words) {
        const std::pair<std::string, std::string> option = absl::StrSplit(word, absl::MaxSplits('=', 1));
        options[option.first] = option.second;
    }
    std::string text;
    const auto print = [&](size_t limit) {
        if (text.size() < limit) return absl::OkStatus();
        const Status status = WriteAll(fd, text);
        text.clear();
        return status;
    };
    SK_RETURN_IF_ERROR(ReadTopics(options, {.partition =
                                                [&](const std::string& topic, int partition, int64_t lowest) {
                                                    absl::StrAppend(&text, "# ", topic, " ", partition, " ", lowest, "\n");
                                                    return print(kPrintBytes);
                                                },
                                            .message =
                                                [&](absl::string_view value) {
                                                    absl::StrAppend(&text, value, "\n");
                                                    return print(kPrintBytes);
                                                }}));
    return print(0);
}

}  // namespace stockade::exporters
