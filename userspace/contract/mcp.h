// First contracts from the tool list of an MCP server (the answer to tools/list).
//
// What a tool says of itself is a stranger's word. So every tool is of class sandbox, unless it says that it only reads and reaches
// nothing outside, takes nothing that names a file, a program, an address or code, and is not called like one that would; and then the
// reason stands beside it, for a person to judge.
#pragma once

#include <string>

#include "userspace/base/status.h"

namespace stockade::contract {

inline constexpr size_t kMaxToolListBytes = 4 << 20;

struct FirstContracts {
    std::string yaml;  // documents that Parse takes, each with what is to be decided in comments
    size_t sandboxed = 0;
    size_t in_process = 0;
};

// kInvalidArgument for what is no tool list.
StatusOr<FirstContracts> ContractsFromMcp(const std::string& json);

}  // namespace stockade::contract
