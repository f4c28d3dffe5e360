// One event as a sentence.
#pragma once

#include <string>

#include "userspace/timeline/story.h"

namespace stockade::timeline {

// Everything but sandbox, count and items. A row without text is not shown.
Row Describe(const v1::Event& event);
// The verb of a row that stands for many: "read", "wrote", "connected to", "asked for".
std::string VerbOf(const v1::Event& event);
// What those are: "files", "addresses", "names".
std::string ThingsOf(const v1::Event& event);

}  // namespace stockade::timeline
