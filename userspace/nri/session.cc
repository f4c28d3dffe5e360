#include "userspace/nri/session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stockade::nri {
namespace {

constexpr char kPluginService[] = "nri.pkg.api.v1alpha1.Plugin";
constexpr char kRuntimeService[] = "nri.pkg.api.v1alpha1.Runtime";
// The version of NRI whose messages these are. A runtime may use it to leave out what we would not know.
constexpr char kNriVersion[] = "0.12.0";
constexpr uint32_t kRegisterStream = 1;  // a client's streams are odd

// Numbers of nri.pkg.api.v1alpha1.Event.
constexpr int kCreateContainer = 4, kStartContainer = 6, kStopContainer = 10, kRemoveContainer = 11;
constexpr int32_t Bit(int event) { return 1 << (event - 1); }
constexpr int32_t kEvents = Bit(kCreateContainer) | Bit(kStartContainer) | Bit(kStopContainer) | Bit(kRemoveContainer);

// Codes of google.rpc.Status. Never "deadline exceeded", "cancelled" or "unavailable": the runtime could take one for the end of the
// plugin, and would let the container go on without it.
constexpr int kUnknown = 2, kInvalidArgument = 3, kResourceExhausted = 8, kFailedPrecondition = 9, kUnimplemented = 12;

// The runtime's parser takes text that is no UTF-8 for a broken answer, and a broken answer is none.
std::string Printable(absl::string_view text) {
    std::string out(text.substr(0, kMaxErrorBytes));
    for (char& c : out) {
        if (c < 0x20 || c > 0x7e) c = '?';
    }
    return out;
}

int CodeOf(const Status& status) {
    switch (status.code()) {
        case absl::StatusCode::kInvalidArgument:
        case absl::StatusCode::kNotFound:
        case absl::StatusCode::kAlreadyExists:
        case absl::StatusCode::kPermissionDenied:
        case absl::StatusCode::kResourceExhausted:
        case absl::StatusCode::kFailedPrecondition:
            return static_cast<int>(status.code());
        default:
            return kUnknown;
    }
}

}  // namespace

void SessionCounters::Add(const SessionCounters& other) {
    calls += other.calls;
    refused_calls += other.refused_calls;
    unknown_methods += other.unknown_methods;
    malformed_messages += other.malformed_messages;
    stray_frames += other.stray_frames;
    broken_streams += other.broken_streams;
    late_answers += other.late_answers;
}

Session::Session(Options options) : options_(std::move(options)) {
    RegisterPluginRequest message;
    message.set_plugin_name(options_.name);
    message.set_plugin_idx(options_.index);
    message.set_nri_version(kNriVersion);
    RpcRequest request;
    request.set_service(kRuntimeService);
    request.set_method("RegisterPlugin");
    request.set_payload(message.SerializeAsString());
    const StatusOr<std::string> frame =
        EncodeFrame(kRuntimeConnection, {.stream = kRegisterStream, .data = request.SerializeAsString()});
    if (frame.ok()) output_ = *frame;  // names come from a checked configuration: it always fits
    pending_.kind = CallKind::kSynchronized;
}

Status Session::Feed(absl::string_view bytes) {
    trunk_.Add(bytes);
    const auto feed = [this]() -> Status {
        while (true) {
            SK_ASSIGN_OR_RETURN(std::optional<TrunkFrame> trunk, trunk_.Next());
            if (!trunk) return absl::OkStatus();
            RpcParser& parser = trunk->connection == kPluginConnection ? plugin_ : runtime_answers_;
            parser.Add(trunk->payload);
            while (true) {
                SK_ASSIGN_OR_RETURN(std::optional<RpcFrame> frame, parser.Next());
                if (!frame) break;
                SK_RETURN_IF_ERROR(OnFrame(trunk->connection, *std::move(frame)));
            }
        }
    };
    const Status status = feed();
    if (!status.ok()) ++counters_.broken_streams;
    return status;
}

Status Session::OnFrame(uint32_t connection, RpcFrame frame) {
    if (connection == kPluginConnection && frame.type == RpcType::kRequest) return OnRequest(frame);
    if (connection == kRuntimeConnection && frame.type == RpcType::kResponse) return OnResponse(frame);
    ++counters_.stray_frames;
    return absl::OkStatus();
}

Status Session::OnResponse(const RpcFrame& frame) {
    if (frame.stream != kRegisterStream || registered_) {
        ++counters_.stray_frames;
        return absl::OkStatus();
    }
    RpcResponse response;
    if (!response.ParseFromString(frame.data)) {
        ++counters_.malformed_messages;
        return absl::InvalidArgumentError("the runtime's answer to our registration is no ttRPC response");
    }
    if (response.status().code() != 0) {
        return absl::FailedPreconditionError(
            absl::StrCat("the runtime refuses the plugin: ", Printable(response.status().message())));
    }
    registered_ = true;
    return absl::OkStatus();
}

Status Session::OnRequest(const RpcFrame& frame) {
    ++counters_.calls;
    if (frame.flags & kRpcFlagOpen) {
        ++counters_.refused_calls;
        return Refuse(frame.stream, kUnimplemented, "streams are not part of NRI");
    }
    RpcRequest request;
    if (!request.ParseFromString(frame.data)) return Malformed(frame.stream, "ttRPC request");
    return Dispatch(frame.stream, request);
}

Status Session::Dispatch(uint32_t stream, const RpcRequest& request) {
    const std::string& method = request.method();
    if (request.service() != kPluginService) {
        ++counters_.unknown_methods;
        return Refuse(stream, kUnimplemented, "no such service: this plugin speaks nri.pkg.api.v1alpha1");
    }
    if (method == "Configure") return Configure(stream, request.payload());
    if (method == "Synchronize") return Synchronize(stream, request.payload());
    if (method == "Shutdown") return Reply(stream, {});  // the runtime's end is seen by the socket
    if (method == "StateChange") {
        StateChangeEvent event;
        if (!event.ParseFromString(request.payload())) return Malformed(stream, "StateChangeEvent");
        if (event.event() == kStartContainer || event.event() == kRemoveContainer) {
            const CallKind kind = event.event() == kStartContainer ? CallKind::kStart : CallKind::kRemove;
            return OnContainer(stream, kind, std::move(*event.mutable_pod()), std::move(*event.mutable_container()));
        }
        return Reply(stream, {});  // of what we did not ask for; nothing would come of an error
    }
    static const auto* const kinds = new std::map<std::string, CallKind>{{"CreateContainer", CallKind::kCreate},
                                                                         {"StartContainer", CallKind::kStart},
                                                                         {"StopContainer", CallKind::kStop},
                                                                         {"RemoveContainer", CallKind::kRemove}};
    const auto found = kinds->find(method);
    if (found == kinds->end()) {
        ++counters_.unknown_methods;
        return Refuse(stream, kUnimplemented, "no such method, or one that this plugin did not ask for");
    }
    ContainerRequest message;
    if (!message.ParseFromString(request.payload())) return Malformed(stream, method);
    return OnContainer(stream, found->second, std::move(*message.mutable_pod()), std::move(*message.mutable_container()));
}

Status Session::Configure(uint32_t stream, const std::string& payload) {
    ConfigureRequest request;
    if (!request.ParseFromString(payload)) return Malformed(stream, "ConfigureRequest");
    runtime_ = absl::StrCat(Printable(request.runtime_name()), " ", Printable(request.runtime_version()));
    if (!request.nri_version().empty()) absl::StrAppend(&runtime_, ", NRI ", Printable(request.nri_version()));
    request_timeout_ms_ = std::max<int64_t>(request.request_timeout(), 0);
    configured_ = true;
    ConfigureResponse response;
    response.set_events(kEvents);
    return ReplyMessage(stream, response);
}

Status Session::Synchronize(uint32_t stream, const std::string& payload) {
    SynchronizeRequest request;
    if (!request.ParseFromString(payload)) return Malformed(stream, "SynchronizeRequest");
    if (!configured_) {
        ++counters_.refused_calls;
        return Refuse(stream, kFailedPrecondition, "Synchronize before Configure");
    }
    if (pending_.pods.size() + pending_.containers.size() + static_cast<size_t>(request.pods_size() + request.containers_size()) >
        kMaxSynchronized) {
        ++counters_.refused_calls;
        // Half a list would leave the other half unguarded and nobody would know.
        (void)Refuse(stream, kResourceExhausted, "more pods and containers than this plugin takes");
        return absl::ResourceExhaustedError(
            absl::StrCat("the runtime lists more than ", kMaxSynchronized, " pods and containers"));
    }
    for (PodSandbox& pod : *request.mutable_pods()) pending_.pods.push_back(std::move(pod));
    for (Container& container : *request.mutable_containers()) pending_.containers.push_back(std::move(container));
    SynchronizeResponse response;
    response.set_more(request.more());
    SK_RETURN_IF_ERROR(ReplyMessage(stream, response));
    if (request.more()) return absl::OkStatus();
    synchronized_ = true;
    calls_.push_back(std::exchange(pending_, Call{.kind = CallKind::kSynchronized}));
    return absl::OkStatus();
}

Status Session::OnContainer(uint32_t stream, CallKind kind, PodSandbox pod, Container container) {
    if (!configured_) {
        ++counters_.refused_calls;
        return Refuse(stream, kFailedPrecondition, "a container before Configure");
    }
    if (container.id().empty()) return Malformed(stream, "container without an id");
    if (waiting_.size() >= kMaxWaiting) {
        ++counters_.refused_calls;
        return Refuse(stream, kResourceExhausted, "too many requests wait for an answer");
    }
    for (const auto& [id, waiting] : waiting_) {
        if (waiting.stream != stream) continue;
        ++counters_.refused_calls;
        return absl::InvalidArgumentError(absl::StrCat("the runtime uses stream ", stream, " for two requests at once"));
    }
    const uint64_t id = next_id_++;
    waiting_[id] = {.stream = stream};
    calls_.push_back({.kind = kind, .id = id, .pod = std::move(pod), .container = std::move(container)});
    return absl::OkStatus();
}

Status Session::Malformed(uint32_t stream, absl::string_view what) {
    ++counters_.malformed_messages;
    return Refuse(stream, kInvalidArgument, absl::StrCat("malformed: ", what));
}

void Session::Answer(uint64_t id, const Status& status) {
    const auto found = waiting_.find(id);
    if (found == waiting_.end()) {
        ++counters_.late_answers;
        return;
    }
    const uint32_t stream = found->second.stream;
    waiting_.erase(found);
    // Bounded by kMaxWaiting answers of at most kMaxErrorBytes each, so that it always fits.
    if (status.ok()) {
        (void)Reply(stream, {});
    } else {
        (void)Refuse(stream, CodeOf(status), status.message());
    }
}

void Session::RefuseWaiting(const Status& status) {
    while (!waiting_.empty()) Answer(waiting_.begin()->first, status);
}

Status Session::Refuse(uint32_t stream, int code, absl::string_view text) {
    RpcResponse response;
    response.mutable_status()->set_code(code);
    response.mutable_status()->set_message(absl::StrCat("stockade: ", Printable(text)));
    return Reply(stream, response);
}

Status Session::ReplyMessage(uint32_t stream, const google::protobuf::MessageLite& message) {
    RpcResponse response;
    response.set_payload(message.SerializeAsString());
    return Reply(stream, response);
}

Status Session::Reply(uint32_t stream, const RpcResponse& response) {
    SK_ASSIGN_OR_RETURN(const std::string frame,
                        EncodeFrame(kPluginConnection,
                                    {.stream = stream, .type = RpcType::kResponse, .data = response.SerializeAsString()}));
    if (output_.size() + frame.size() > kMaxOutputBytes)
        return absl::ResourceExhaustedError("the runtime asks and does not take the answers");
    output_ += frame;
    return absl::OkStatus();
}

}  // namespace stockade::nri
