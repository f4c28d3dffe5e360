// What `stockade dns meter` prints.
#pragma once

#include <string>

#include "userspace/dns/replay.h"

namespace stockade::cmd {

// One object: "pairs" (all of them), "refused", "summary". Sorted, so that a file gives the same bytes.
std::string DnsReportJson(const dns::Replay& replay);
// A table; of the pairs without a word to say only the `quiet` ones that spent most.
std::string DnsReportText(const dns::Replay& replay, size_t quiet);
bool AnythingBlocked(const dns::Replay& replay);

}  // namespace stockade::cmd
