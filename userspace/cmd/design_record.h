// The design record of a sandbox: ten lines for whoever has to answer for it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "userspace/cmd/config.h"
#include "userspace/contract/document.h"
#include "userspace/policy/document.h"

namespace stockade::cmd {

struct RecordFacts {
    const policy::ResolvedPolicy* policy = nullptr;    // not owned, nor are the others
    std::string policy_hash;                           // of the compiled one, or its canonical text
    const contract::ToolContract* contract = nullptr;  // null = none
    std::string contract_sha256;
    const Config* config = nullptr;
    std::string command;        // of one that runs; empty = of any that may
    uint32_t uid = 0;           // likewise
    std::string session, tool;
    std::string backend;        // empty = not known: nothing runs
};

using DesignRecord = std::vector<std::pair<std::string, std::string>>;  // name, value
DesignRecord MakeDesignRecord(const RecordFacts& facts);

std::string RecordText(const DesignRecord& record);
std::string RecordJson(const DesignRecord& record);
std::string RecordMarkdown(const std::string& title, const DesignRecord& record);

}  // namespace stockade::cmd
