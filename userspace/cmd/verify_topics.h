// Lines of Kafka's topics for `stockade verify`, by stockaded: it has the client, and `stockade` has not.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::cmd {

// `options` are KEY=VALUE of a kafka exporter. `line` has what exporters::PrintTopics says. What stockaded complains of goes
// to our standard error.
Status ReadTopicLines(const std::vector<std::string>& options, const std::function<Status(const std::string& line)>& line);

}  // namespace stockade::cmd
