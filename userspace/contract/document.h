// The ToolContract document as values: what one tool may be asked to do, what it gets, and what may come back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "userspace/contract/result_schema.h"
#include "userspace/policy/document.h"
#include "userspace/policy/pattern.h"

namespace stockade::contract {

enum class ToolClass {
    kInProcess,  // pure functions of the caller's own, with trusted schemas
    kSandbox,    // executes, fetches, installs, or reads what a stranger wrote
};

// What may be asked for at most; a contract that needs more is a mistake.
inline constexpr uint64_t kMaxFileBytes = 1ull << 30;
inline constexpr uint64_t kMaxResultBytes = 4ull << 20;  // a person or a model reads it
inline constexpr uint32_t kMaxResultDepth = 64;
inline constexpr uint32_t kMaxOutputFiles = 4096;
// Rows of one list of the document. Each is tried on each file.
inline constexpr size_t kMaxRules = 64;

// Files below /in or /out that a pattern covers. Relative, as policies write patterns.
struct FileRule {
    std::string text;
    policy::PathPattern pattern;
    uint64_t max_bytes = 0;  // of one file
    uint32_t max_files = 1;  // that the pattern may cover
    bool required = true;    // of inputs: one must be there
    policy::Position at;
};

// One JSON text in /out; it is handed over as a value, and never as the file that the tool wrote.
struct ResultRule {
    std::string file;  // a name directly in /out
    uint64_t max_bytes = 64 << 10;
    uint32_t max_depth = 16;
    std::string schema;  // JSON
    std::shared_ptr<const ResultSchema> compiled;
    policy::Position at;
};

struct Limits {
    uint64_t memory_bytes = 0;  // 0 = the agent's own; never more than that
    uint64_t pids = 0;
    uint32_t cpu_percent = 0;
    uint64_t out_bytes = 0;
};

// 0 = not written.
inline constexpr uint64_t kDefaultStdoutBytes = 1ull << 20;

struct ToolContract {
    std::string name;
    policy::Position at;
    std::string tool;  // the label; the name where nothing is said
    std::string description;
    ToolClass tool_class = ToolClass::kSandbox;
    std::vector<policy::Entry> commands;        // patterns of the program's path
    std::vector<policy::Entry> deny_arguments;  // RE2, found anywhere in an argument or in all of them
    std::string policy;                         // a name, or a file beside the contract
    policy::Position policy_at;
    std::string runtime = "native";
    std::string require;  // "lsm": no weaker backend
    std::vector<FileRule> inputs;
    std::vector<FileRule> outputs;
    std::optional<ResultRule> result;
    uint64_t stdout_bytes = kDefaultStdoutBytes;  // and of standard error
    Limits limits;
    std::string timeout;  // as `stockade run --timeout` takes it
    uint64_t timeout_ns = 0;
    bool approval = false;
    uint64_t approval_timeout_ns = 60'000'000'000;
};

}  // namespace stockade::contract
