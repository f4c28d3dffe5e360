// What `stockade contract check`, `explain` and `render` say, apart from flags. Exit status: 0 ok, 1 findings or a refusal, 2 cannot be used.
#pragma once

#include <string>
#include <vector>

#include "userspace/contract/job.h"

namespace stockade::cmd {

inline constexpr int kContractUsage = 2;

struct ContractOutput {
    std::string out;
    std::string err;
};

// `dirs` as in policy_load.h.
int ContractCheck(const std::vector<std::string>& files, const std::vector<std::string>& dirs, bool strict, bool json, ContractOutput& io);
// `command` may be empty: then only the contract is told.
int ContractExplain(const std::string& file, std::vector<std::string> command, bool json, ContractOutput& io);

// The Job of one call, and what of the contract it does not keep.
int ContractRender(const std::string& file, const contract::JobRequest& request, ContractOutput& io);

}  // namespace stockade::cmd
