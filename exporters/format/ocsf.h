// OCSF 1.8.0, one JSON object a line.
//
// Where a field goes is the `ocsf` option of event.proto, read from the descriptor once. Beyond that
// here is only what OCSF asks for itself: class, activity, severity and disposition as numbers with
// their captions, times in milliseconds, the required objects. The profiles are host, container,
// security_control and datetime.
#pragma once

#include <string>

#include "userspace/model/event.pb.h"

namespace stockade::exporters {

constexpr char kOcsfVersion[] = "1.8.0";

// Appends the object without a newline.
void AppendOcsf(const v1::Event& event, std::string* out);
std::string ToOcsf(const v1::Event& event);

}  // namespace stockade::exporters
