// How the end of a run is told: the JSON of --result, and the lines on standard error.
#pragma once

#include <string>

#include "userspace/api/frame.h"

namespace stockade::cmd {

std::string ResultJson(const api::RunResult& result);
// One line with the reason when it did not end by itself, then what was refused. Empty when there
// is nothing to say. `quiet` keeps the reason and what was left over, and drops the rest.
std::string ResultText(const api::RunResult& result, bool quiet = false);

}  // namespace stockade::cmd
