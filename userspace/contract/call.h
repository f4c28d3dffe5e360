// One call of a tool against its contract: may it be started, and what exactly is it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "userspace/contract/document.h"

namespace stockade::contract {

// One file that is shown in /in.
struct InputFile {
    std::string path;  // relative
    uint64_t bytes = 0;
    std::string sha256;  // hex
};

// All that decides what happens. What was approved is what runs: each part is looked at again where it is used.
struct Call {
    std::vector<std::string> argv;
    std::vector<std::string> env;  // all of it, "K=V"
    std::string cwd;
    std::vector<InputFile> inputs;  // by path
    std::string contract_sha256;    // of the file's bytes
    std::string policy_sha256;      // of the policy's canonical text, with what it extends
};

struct CallDigests {
    std::string contract, arguments, inputs, policy;
    std::string all;  // over these four: what an approval is for
};
CallDigests DigestsOf(const Call& call);

// The program as an absolute path: a bare name is looked for where sandboxes look (kPath). contract.command where there is none, or
// where the words do not say which file is meant.
StatusOr<std::string> FindProgram(const std::string& word);
// argv[0] is absolute. Refused with contract.class, contract.command or contract.argument.
Status CheckCall(const ToolContract& contract, const std::vector<std::string>& argv);

// PATH of every sandbox.
inline constexpr char kPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

}  // namespace stockade::contract
