// What the topics of a kafka exporter hold now, from the beginning to the end of each partition.
//
//   SK_RETURN_IF_ERROR(ReadTopics({{"hostport", "broker:9092"}, {"topic", "stockade"}}, sink));
//
// Options are the exporter's, of which those of a producer say nothing here. Nothing is committed and no group is joined: who
// reads leaves no trace with the broker.
#pragma once

#include <functional>
#include <string>

#include "exporters/exporter.h"

namespace stockade::exporters {

struct TopicSink {
    // Before the first message of a partition, in whose order its messages come. `lowest`: offset of the first that is there;
    // above 0 the broker has removed those before.
    std::function<Status(const std::string& topic, int partition, int64_t lowest)> partition;
    std::function<Status(absl::string_view value)> message;
};

// kInvalidArgument names the option; kNotFound the topic; kUnavailable: no answer, or nothing more, for half a minute. The
// sink's own failure is returned as it is.
Status ReadTopics(const ExporterOptions& options, const TopicSink& sink);

// The same as text to a descriptor: "# <topic> <partition> <lowest>" and then a line for each message. `words` are
// KEY=VALUE.
Status PrintTopics(const std::vector<std::string>& words, int fd);

}  // namespace stockade::exporters
