// What a running agent was started with, for the clients that it serves.
//
// A file in runtime_dir, which only root reads: a client that has another configuration should say so, rather than
// leave it without effect and without a word.
#pragma once

#include <string>
#include <vector>

#include "userspace/cmd/config.h"

namespace stockade::cmd {

// Of the file alone: what the flags of `stockaded` changed is meant to differ. On a full disk there is no record, not
// even an earlier agent's: nothing is compared then, and an agent that guards without it is better than none.
void WriteConfigRecord(const Config& config);
// Keys of `config` whose values are not those of the record; none where there is no record.
std::vector<std::string> DifferingKeys(const Config& config);

}  // namespace stockade::cmd
