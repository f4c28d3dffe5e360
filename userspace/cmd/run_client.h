// One run, seen from the client: streams, terminal, signals, events, and how it ended.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "exporters/exporter.h"
#include "userspace/api/channel.h"
#include "userspace/cmd/client.h"
#include "userspace/cmd/contract_run.h"
#include "userspace/cmd/result_file.h"
#include "userspace/cmd/run_request.h"
#include "userspace/cmd/seen_numbers.h"
#include "userspace/cmd/shared_flags.h"
#include "userspace/cmd/stdio_relay.h"
#include "userspace/launch/pty.h"

namespace stockade::cmd {

class RunClient {
  public:
    RunClient(const ClientOptions& options, const RunFlags& flags) : options_(options), flags_(flags) {}
    ~RunClient();

    // Runs to the end. The exit status of `stockade run`, or why nothing was started.
    StatusOr<int> Run();

  private:
    StatusOr<int> RunToEnd();
    StatusOr<RunRequest> Request();
    Status Prepare();
    Status SendRun(RunRequest request);
    Status Loop();
    Status OnSignal();
    Status OnAgent();
    Status OnSession();
    Status HandleAgent(const api::Message& message);
    void LoseAgent();
    void StartTerminal(Fd master);
    void StopTerminal();
    void WriteEvent(const std::string& bytes);
    void FromSession();
    bool Done() const;
    bool EventsToStdout() const { return flags_.events == "-"; }

    const ClientOptions& options_;
    const RunFlags& flags_;
    std::unique_ptr<ContractRun> contract_;  // null = none
    SharedFlags shared_;
    api::Channel agent_;
    api::Channel session_;
    Fd signals_;
    StdioRelay stdio_;
    std::unique_ptr<exporters::Exporter> events_;
    Status events_status_;
    SeenNumbers seen_;
    uint64_t events_failed_ = 0;
    bool tty_ = false;
    Fd master_;
    Fd terminal_stop_;
    std::unique_ptr<launch::RawTerminal> raw_;
    std::thread terminal_;
    std::string id_;
    bool session_ended_ = false;
    api::SessionEnded ended_;
    bool has_result_ = false;
    api::RunResult result_;
    ResultFile result_file_;
    bool agent_lost_ = false;
    uint64_t result_deadline_ns_ = 0;  // after the session's end: how long the agent is waited for
};

}  // namespace stockade::cmd
