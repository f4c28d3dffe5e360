#include "userspace/cmd/run_client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "absl/strings/str_cat.h"
#include "exporters/registry.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/cmd/run_result.h"

namespace stockade::cmd {
namespace {

// The agent's result follows the shim's end within milliseconds; a next agent needs seconds.
constexpr uint64_t kResultWaitNs = 15'000'000'000;
constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

}  // namespace

RunClient::~RunClient() { StopTerminal(); }

Status RunClient::Prepare() {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int signo : kForwarded) sigaddset(&wanted, signo);
    sigaddset(&wanted, SIGWINCH);
    // Before any thread is made, so that all of them leave these to the signalfd.
    (void)pthread_sigmask(SIG_BLOCK, &wanted, nullptr);
    (void)signal(SIGPIPE, SIG_IGN);
    signals_ = Fd(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_.ok()) return ErrnoStatus(errno, "make a signalfd");
    // Lines that a program reads as events must not come from inside.
    if (EventsToStdout() && SameStream(STDOUT_FILENO, STDERR_FILENO)) {
        return absl::InvalidArgumentError(
            "--events -: standard output and standard error are one file, and what the command writes could "
            "pass for events: send one of them elsewhere");
    }
    tty_ = !flags_.no_tty && contract_ == nullptr && !EventsToStdout() && isatty(0) && isatty(1);
    if (!tty_) SK_RETURN_IF_ERROR(stdio_.Prepare());
    if (!flags_.events.empty()) {
        SK_ASSIGN_OR_RETURN(
            events_, exporters::MakeExporter("jsonl", {{"path", flags_.events}, {"buffer_bytes", "0"}}));
    }
    return absl::OkStatus();
}

Status RunClient::SendRun(RunRequest request) {
    api::Message message;
    *message.mutable_run() = std::move(request.run);
    SK_ASSIGN_OR_RETURN(auto pair, api::Channel::Pair());
    session_ = std::move(pair.first);
    std::vector<api::FdArg> fds = {{api::FD_SESSION, pair.second.fd()}};
    if (tty_) {
        message.mutable_run()->set_tty(true);
        winsize size{};
        if (ioctl(0, TIOCGWINSZ, &size) == 0) {
            message.mutable_run()->set_rows(size.ws_row);
            message.mutable_run()->set_columns(size.ws_col);
        }
    } else {
        const api::FdRole roles[] = {api::FD_STDIN, api::FD_STDOUT, api::FD_STDERR};
        for (int stream = 0; stream < 3; ++stream) {
            const int fd = stdio_.fd(stream == 1 && EventsToStdout() ? 2 : stream);
            if (fd >= 0) fds.emplace_back(roles[stream], fd);
        }
    }
    for (const auto& [role, fd] : request.fds) fds.emplace_back(role, fd.get());
    return agent_.Send(message, fds);
}

StatusOr<int> RunClient::Run() {
    // Before anything else can fail, so that each failure is told there.
    SK_ASSIGN_OR_RETURN(result_file_, ResultFile::Open(flags_.result));
    StatusOr<int> exit_code = RunToEnd();
    if (!exit_code.ok()) {
        const Status written = result_file_.WriteFailed(exit_code.status(), contract_ != nullptr ? &contract_->report() : nullptr);
        if (!written.ok()) (void)Complain(written);
    }
    return exit_code;
}

// With a contract: refused, or approved, before anybody is asked to make something.
StatusOr<RunRequest> RunClient::Request() {
    if (flags_.contract.empty()) return MakeRunRequest(flags_);
    SK_ASSIGN_OR_RETURN(contract_, ContractRun::Create(flags_, options_));
    SK_ASSIGN_OR_RETURN(RunRequest request, MakeRunRequest(contract_->flags()));
    SK_RETURN_IF_ERROR(contract_->Complete(&request));
    SK_RETURN_IF_ERROR(contract_->Approve());
    stdio_.Limit(contract_->stream_bytes());
    return request;
}

StatusOr<int> RunClient::RunToEnd() {
    SK_RETURN_IF_ERROR(CheckRunFlags(flags_));
    SK_ASSIGN_OR_RETURN(RunRequest request, Request());
    SK_RETURN_IF_ERROR(Prepare());
    SK_ASSIGN_OR_RETURN(agent_, ConnectOrStartAgent(options_));
    if (const std::string note = OtherConfigNote(options_); !note.empty())
        (void)Complain(absl::FailedPreconditionError(note));
    SK_RETURN_IF_ERROR(SendRun(std::move(request)));
    if (!tty_) stdio_.Start();
    if (const Status status = Loop(); !status.ok()) {
        session_.Close();  // ends a sandbox that was started yet, and with it the streams to be drained
        return status;
    }
    if (!has_result_ && id_.empty()) return absl::UnavailableError("the agent died before the sandbox was started");
    stdio_.Finish();
    StopTerminal();
    shared_.Restore();
    if (!has_result_) FromSession();
    if (contract_ != nullptr) contract_->Report(stdio_, &result_);
    if (events_ != nullptr) {
        const Status closed = events_->Close();
        if (events_status_.ok()) events_status_ = closed;
    }
    const std::string shown = ResultText(result_, flags_.quiet);
    if (!events_status_.ok()) {
        result_.add_notes(absl::StrCat("NOT WRITTEN: events of this run (--events ", flags_.events,
                                       "): ", events_status_.message()));
    }
    const Status written = result_file_.Write(result_);
    (void)WriteAll(STDERR_FILENO, shown);
    if (!stdio_.status().ok()) (void)Complain(stdio_.status());
    // Last, where they are seen: the exit status is the command's own whatever became of these.
    if (!events_status_.ok()) (void)Complain(absl::DataLossError(result_.notes(result_.notes_size() - 1)));
    if (!written.ok()) (void)Complain(Annotate(written, "NOT WRITTEN"));
    return result_.exit_code();
}

bool RunClient::Done() const {
    if (has_result_) return session_ended_ || !session_.ok() || result_.end() == "failed";
    return session_ended_ && (!agent_.ok() || BootNow() >= result_deadline_ns_);
}

Status RunClient::Loop() {
    while (!Done()) {
        pollfd fds[] = {{.fd = agent_.ok() ? agent_.fd() : -1, .events = POLLIN, .revents = 0},
                        {.fd = session_.ok() ? session_.fd() : -1, .events = POLLIN, .revents = 0},
                        {.fd = signals_.get(), .events = POLLIN, .revents = 0}};
        // An agent that is gone is looked for again; else only a deadline needs the clock.
        const int timeout = agent_lost_ ? 100 : session_ended_ ? 1000 : -1;
        if (poll(fds, 3, timeout) < 0 && errno != EINTR) return ErrnoStatus(errno, "wait for the sandbox");
        if (fds[2].revents != 0) SK_RETURN_IF_ERROR(OnSignal());
        if (fds[0].revents != 0) SK_RETURN_IF_ERROR(OnAgent());
        if (fds[1].revents != 0) SK_RETURN_IF_ERROR(OnSession());
        if (agent_lost_) LoseAgent();
    }
    return absl::OkStatus();
}

Status RunClient::OnSignal() {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
        api::Message message;
        if (info.ssi_signo == SIGWINCH) {
            if (master_.ok()) (void)launch::ForwardWindowSize(0, master_.get());
            continue;
        }
        message.mutable_signal()->set_number(static_cast<int>(info.ssi_signo));
        if (session_.ok()) (void)session_.Send(message);  // a shim that is gone is seen in the loop
    }
    return absl::OkStatus();
}

Status RunClient::OnAgent() {
    while (agent_.ok()) {
        StatusOr<std::optional<api::Packet>> packet = agent_.TryReceive();
        if (!packet.ok()) {
            agent_.Close();
            agent_lost_ = !has_result_;
            return absl::OkStatus();
        }
        if (!packet->has_value()) return absl::OkStatus();
        SK_RETURN_IF_ERROR(HandleAgent((*packet)->message));
    }
    return absl::OkStatus();
}

Status RunClient::HandleAgent(const api::Message& message) {
    if (message.has_error()) return ErrorOf(message.error());
    if (message.has_event_record()) WriteEvent(message.event_record().event());
    if (message.has_run_started()) {
        id_ = message.run_started().id();
        if (!flags_.quiet) {
            for (const std::string& note : message.run_started().attestation().notes()) {
                (void)WriteAll(STDERR_FILENO, absl::StrCat("stockade: ", note, "\n"));
            }
        }
    }
    if (message.has_run_result()) {
        has_result_ = true;
        result_ = message.run_result();
    }
    return absl::OkStatus();
}

// Verdicts and sandbox go on without an agent; events and the result come from the next one.
void RunClient::LoseAgent() {
    // Its keeper may have been told to let the command go all the same, and says so.
    if (id_.empty()) return;
    StatusOr<api::Channel> channel = ConnectOrStartAgent(options_);
    if (!channel.ok()) {
        if (session_ended_) agent_lost_ = false;
        return;
    }
    api::Message message;
    message.mutable_attach()->set_id(id_);
    message.mutable_attach()->set_events(events_ != nullptr);
    const StatusOr<api::Message> answer = Ask(*channel, message);
    // These are an agent's own words. Whatever else went wrong it died over the question, and another one follows.
    agent_lost_ = !answer.ok() && !absl::IsNotFound(answer.status()) && !absl::IsFailedPrecondition(answer.status());
    if (answer.ok()) agent_ = *std::move(channel);
}

Status RunClient::OnSession() {
    while (session_.ok()) {
        StatusOr<std::optional<api::Packet>> packet = session_.TryReceive();
        if (!packet.ok()) {
            session_.Close();
            // Without a last word the shim was killed; the agent tells the rest.
            if (!session_ended_) {
                session_ended_ = true;
                ended_.set_exit_code(137);
                ended_.set_end("shim");
                ended_.set_reason("the keeper of the sandbox was killed");
                result_deadline_ns_ = BootNow() + kResultWaitNs;
            }
            return absl::OkStatus();
        }
        if (!packet->has_value()) return absl::OkStatus();
        const api::Message& message = (*packet)->message;
        if (message.has_session_started()) {
            id_ = message.session_started().id();
            if (Fd master = (*packet)->Take(api::FD_PTY); master.ok()) StartTerminal(std::move(master));
        }
        if (message.has_session_result() && contract_ != nullptr) {
            api::Message verdict;
            *verdict.mutable_result_verdict() = contract_->Judge(**packet);
            (void)session_.Send(verdict);  // a shim that is gone copies nothing out
        }
        if (message.has_session_ended()) {
            session_ended_ = true;
            ended_ = message.session_ended();
            result_deadline_ns_ = BootNow() + kResultWaitNs;
        }
    }
    return absl::OkStatus();
}

void RunClient::StartTerminal(Fd master) {
    master_ = std::move(master);
    terminal_stop_ = Fd(eventfd(0, EFD_CLOEXEC));
    StatusOr<launch::RawTerminal> raw = launch::RawTerminal::Enter(0);
    if (raw.ok()) raw_ = std::make_unique<launch::RawTerminal>(*std::move(raw));
    (void)launch::ForwardWindowSize(0, master_.get());
    terminal_ = std::thread([this] {
        launch::PtyRelay relay(0, 1, master_.get());
        (void)relay.Run(terminal_stop_.get());  // it ends with the terminal, however that goes
    });
}

void RunClient::StopTerminal() {
    if (terminal_.joinable()) {
        const uint64_t one = 1;
        (void)!write(terminal_stop_.get(), &one, sizeof(one));
        terminal_.join();
    }
    raw_.reset();
}

void RunClient::WriteEvent(const std::string& bytes) {
    v1::Event event;
    if (events_ == nullptr || !event.ParseFromString(bytes) || !seen_.Add(event.kernel_seq())) return;
    const Status status = events_->Export(event);
    if (status.ok()) return;
    ++events_failed_;
    if (events_status_.ok()) events_status_ = status;
}

// The agent's account is missing: what the shim knows is told, and that it is not all.
void RunClient::FromSession() {
    result_.set_id(id_);
    result_.set_exit_code(ended_.exit_code());
    result_.set_end(ended_.end());
    result_.set_reason(ended_.reason());
    *result_.mutable_removal() = ended_.removal();
    for (const std::string& note : ended_.notes()) result_.add_notes(note);
    if (ended_.has_outputs()) *result_.mutable_outputs() = ended_.outputs();
    result_.add_notes("the agent died during the run: what was refused is in the next agent's events");
}

}  // namespace stockade::cmd
