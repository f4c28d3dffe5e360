// Event to one line of JSON: the proto mapping with field names as event.proto writes them,
// 64-bit integers as strings, unset fields left out. Own writer: protobuf's takes about 10 times
// as long; a test holds the two equal.
#pragma once

#include <string>

#include "userspace/base/status.h"
#include "userspace/model/event.pb.h"

namespace stockade::model {

// One line without the newline. Valid UTF-8 without control characters whatever the fields hold.
std::string ToJsonLine(const v1::Event& event);
// The same, appended; for writers that keep a buffer.
void AppendJson(const google::protobuf::Message& message, std::string* out);
// The line of a serialised event, as AppendJson would write it: what leaves the spool is not made a message for it. False, and
// nothing appended, for what no serialiser of this version writes; then parse, and AppendJson what comes of it.
bool AppendJsonOf(absl::string_view event, std::string* out);
// One string with its quotes.
void AppendJsonString(absl::string_view text, std::string* out);

// Reads what ToJsonLine wrote. kInvalidArgument names the place; unknown fields are errors.
StatusOr<v1::Event> FromJsonLine(absl::string_view line);

}  // namespace stockade::model
