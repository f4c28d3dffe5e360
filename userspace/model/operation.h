// From an event to its row of the coverage table.
#pragma once

#include "absl/strings/string_view.h"
#include "userspace/model/event.pb.h"

namespace stockade::model {

// OperationInfo::id of the operation that the event is about, as near as the event can tell
// (an open through a hard link looks like any open). Empty for kinds without a verdict.
absl::string_view OperationOf(const v1::Event& event);

}  // namespace stockade::model
