// A run by a contract, as its client sees it: what is checked before, asked for, and made of what came back.
//
//   SK_ASSIGN_OR_RETURN(auto run, ContractRun::Create(flags, options));
//   SK_ASSIGN_OR_RETURN(RunRequest request, MakeRunRequest(run->flags()));
//   SK_RETURN_IF_ERROR(run->Complete(&request));
//   SK_RETURN_IF_ERROR(run->Approve());          // until here nothing of the call exists, and no agent was spoken to
//   ...  verdict = run->Judge(packet);  ...  run->Report(stdio, &result);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "userspace/api/channel.h"
#include "userspace/cmd/client.h"
#include "userspace/cmd/run_request.h"
#include "userspace/cmd/stdio_relay.h"
#include "userspace/contract/call.h"

namespace stockade::cmd {

// Of `stockade run`, where the command ended with 0 and its result is not what the contract says (EX_DATAERR).
inline constexpr int kBadResult = 65;

class ContractRun {
  public:
    // Reads the contract and checks command and flags against it.
    static StatusOr<std::unique_ptr<ContractRun>> Create(const RunFlags& flags, const ClientOptions& options);

    const RunFlags& flags() const { return flags_; }  // with what the contract says
    uint64_t stream_bytes() const { return contract_.stdout_bytes; }
    Status Complete(RunRequest* request);
    Status Approve();
    // What the sandbox wrote as its result.
    api::ResultVerdict Judge(api::Packet& packet);
    // Writes the clean result to --out, and says in the result all that the client knows.
    void Report(const StdioRelay& stdio, api::RunResult* result);
    const api::ContractReport& report() const { return report_; }

  private:
    ContractRun(const RunFlags& flags, const ClientOptions& options) : flags_(flags), options_(options) {}
    Status TakeFlags();
    Status AddInputs(RunRequest* request);
    Status AddPolicy(RunRequest* request);
    void AddOutputs(api::Contract* to) const;
    Status WriteResult() const;

    RunFlags flags_;
    const ClientOptions& options_;
    contract::ToolContract contract_;
    contract::Call call_;
    api::ContractReport report_;
    Fd out_;
    std::vector<std::string> notes_;
};

}  // namespace stockade::cmd
