// Sets fields of an event by the names that rules use: for the samples of in-file tests.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/detect/fields.h"

namespace stockade::detect {

// An event of the source with the least that makes it one.
v1::Event BlankEvent(const Source& source);
// kInvalidArgument says why the values do not fit the field.
Status SetField(const Field& field, const std::vector<std::string>& values, v1::Event* event);

}  // namespace stockade::detect
