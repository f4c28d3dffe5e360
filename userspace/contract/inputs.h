// Which files of the caller's directory a contract lets in, and what is in them.
#pragma once

#include <vector>

#include "userspace/contract/call.h"

namespace stockade::contract {

// All of them are copied into memory.
inline constexpr uint64_t kMaxInputBytes = 256ull << 20;
inline constexpr size_t kMaxInputFiles = 4096;
// What is looked at to find them.
inline constexpr size_t kMaxInputEntries = 65536;
inline constexpr int kMaxInputDepth = 64;

struct FoundInputs {
    std::vector<InputFile> files;  // by path
    uint64_t left_out = 0;         // that no rule covers
    std::string first_left_out;
};

// Reads as the caller; links are not followed. Refused with contract.input where a file that a rule covers is no regular one, larger or
// one more than declared, cannot be read, or where a required one is missing.
StatusOr<FoundInputs> FindInputs(const ToolContract& contract, int directory_fd);

}  // namespace stockade::contract
