#include "userspace/guest/conversation.h"

#include "absl/strings/str_cat.h"

namespace stockade::guest {
namespace {

Status Unexpected(const Frame& frame) {
    return absl::InvalidArgumentError(
        absl::StrCat("a frame of kind ", static_cast<int>(frame.kind), " out of its place"));
}

}  // namespace

const char* StageName(Stage stage) {
    switch (stage) {
        case Stage::kBooting:
            return "booting";
        case Stage::kReady:
            return "ready";
        case Stage::kStarting:
            return "starting";
        case Stage::kRunning:
            return "running";
        case Stage::kEnding:
            return "ending";
        case Stage::kComplete:
            return "complete";
    }
    return "?";
}

Stage Conversation::stage() const {
    bool hello = true, end = true;
    for (const State& port : ports_) {
        hello &= port.hello;
        end &= port.end;
    }
    if (!hello) return Stage::kBooting;
    if (!run_sent_) return Stage::kReady;
    if (end) return Stage::kComplete;
    if (exited_ || command_failed_) return Stage::kEnding;
    return started_ ? Stage::kRunning : Stage::kStarting;
}

Status Conversation::Take(Port port, absl::string_view bytes) {
    SK_RETURN_IF_ERROR(broken_);
    State& state = ports_[static_cast<size_t>(port)];
    state.reader.Add(bytes);
    while (true) {
        auto frame = state.reader.Next();
        Status status = frame.status();
        if (status.ok()) {
            if (!frame->has_value()) return absl::OkStatus();
            status = TakeFrame(port, **frame);
        }
        if (!status.ok()) {
            broken_ = Annotate(status, absl::StrCat("port ", PortName(port)));
            return broken_;
        }
    }
}

Status Conversation::TakeFrame(Port port, const Frame& frame) {
    State& state = ports_[static_cast<size_t>(port)];
    if (state.end) return absl::InvalidArgumentError("a frame after the last one");
    if (frame.kind == Kind::kEnd) return TakeEnd(port, frame);
    ++state.frames;
    state.body_bytes += frame.body.size();
    if (!state.hello) return TakeHello(port, frame);
    // Before the order to run there is nothing to tell.
    if (!run_sent_) return Unexpected(frame);
    switch (port) {
        case Port::kControl:
            return TakeControl(frame);
        case Port::kStdio:
            return TakeStdio(frame);
        case Port::kEvents:
            return TakeEvents(frame);
        case Port::kOut:
            return TakeOut(frame);
    }
    return Unexpected(frame);
}

Status Conversation::TakeHello(Port port, const Frame& frame) {
    if (frame.kind != Kind::kHello) return absl::InvalidArgumentError("it does not begin with a hello");
    SK_ASSIGN_OR_RETURN(const Hello hello, ParseMessage<Hello>(frame.body));
    if (hello.port() != static_cast<uint32_t>(port)) {
        return absl::InvalidArgumentError(absl::StrCat("it says hello as port ", hello.port()));
    }
    ports_[static_cast<size_t>(port)].hello = true;
    if (port == Port::kControl) kernel_ = hello.kernel();
    return absl::OkStatus();
}

Status Conversation::TakeEnd(Port port, const Frame& frame) {
    State& state = ports_[static_cast<size_t>(port)];
    if (!state.hello || !run_sent_) return Unexpected(frame);
    if (port == Port::kControl && !exited_ && !command_failed_) {
        return absl::InvalidArgumentError("it ends without a word on the command");
    }
    if (port == Port::kOut && in_entry_) {
        return absl::InvalidArgumentError(
            absl::StrCat("it ends with ", entry_left_, " bytes of a file still to come"));
    }
    SK_ASSIGN_OR_RETURN(const End end, ParseMessage<End>(frame.body));
    if (end.frames() != state.frames || end.body_bytes() != state.body_bytes) {
        return absl::InvalidArgumentError(absl::StrCat("its end tells of ", end.frames(), " frames of ",
                                                       end.body_bytes(), " bytes; ", state.frames, " of ",
                                                       state.body_bytes, " came"));
    }
    state.end = true;
    return absl::OkStatus();
}

Status Conversation::TakeControl(const Frame& frame) {
    if (exited_ || command_failed_) return Unexpected(frame);
    switch (frame.kind) {
        case Kind::kStarted:
            if (started_) return Unexpected(frame);
            started_ = true;
            return absl::OkStatus();
        case Kind::kFailed: {
            if (started_) return Unexpected(frame);
            SK_ASSIGN_OR_RETURN(command_failed_, ParseMessage<Failed>(frame.body));
            return absl::OkStatus();
        }
        case Kind::kExited: {
            if (!started_) return Unexpected(frame);
            SK_ASSIGN_OR_RETURN(Exited exited, ParseMessage<Exited>(frame.body));
            // Linux has 64 signals, and statuses of a byte.
            if (exited.signal() > 64 || exited.status() > 255 ||
                (exited.signal() != 0 && exited.status() != 0)) {
                return absl::InvalidArgumentError("an exit status that no process has");
            }
            exited_ = exited;
            return absl::OkStatus();
        }
        default:
            return Unexpected(frame);
    }
}

Status Conversation::TakeStdio(const Frame& frame) {
    switch (frame.kind) {
        case Kind::kStdout:
            return sink_.Stdout(frame.body);
        case Kind::kStderr:
            return sink_.Stderr(frame.body);
        default:
            return Unexpected(frame);
    }
}

Status Conversation::TakeEvents(const Frame& frame) {
    return frame.kind == Kind::kRecords ? sink_.Records(frame.body) : Unexpected(frame);
}

Status Conversation::TakeOut(const Frame& frame) {
    switch (frame.kind) {
        case Kind::kEntry: {
            if (in_entry_) return absl::InvalidArgumentError("a file before the last one is whole");
            SK_ASSIGN_OR_RETURN(const Entry entry, ParseMessage<Entry>(frame.body));
            if (entry.directory() && entry.size_bytes() != 0) {
                return absl::InvalidArgumentError("a directory with bytes");
            }
            SK_RETURN_IF_ERROR(sink_.OutEntry(entry));
            entry_left_ = entry.size_bytes();
            in_entry_ = entry_left_ != 0;
            return in_entry_ ? absl::OkStatus() : sink_.OutDone();
        }
        case Kind::kEntryData:
            if (!in_entry_ || frame.body.size() > entry_left_ || frame.body.empty()) {
                return absl::InvalidArgumentError("more bytes than the file was to have");
            }
            SK_RETURN_IF_ERROR(sink_.OutBytes(frame.body));
            entry_left_ -= frame.body.size();
            in_entry_ = entry_left_ != 0;
            return in_entry_ ? absl::OkStatus() : sink_.OutDone();
        case Kind::kSkipped: {
            if (in_entry_) return Unexpected(frame);
            SK_ASSIGN_OR_RETURN(const Skipped skipped, ParseMessage<Skipped>(frame.body));
            return sink_.OutSkipped(skipped);
        }
        default:
            return Unexpected(frame);
    }
}

std::string Conversation::PortsWithoutHello() const {
    std::string names;
    for (size_t i = 0; i < kPorts; ++i) {
        if (!ports_[i].hello)
            absl::StrAppend(&names, names.empty() ? "" : ", ", PortName(static_cast<Port>(i)));
    }
    return names;
}

std::string Conversation::PortsWithoutEnd() const {
    std::string names;
    for (size_t i = 0; i < kPorts; ++i) {
        if (!ports_[i].end)
            absl::StrAppend(&names, names.empty() ? "" : ", ", PortName(static_cast<Port>(i)));
    }
    return names;
}

}  // namespace stockade::guest
