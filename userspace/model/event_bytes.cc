#include "userspace/model/event_bytes.h"

#include <vector>

#include "userspace/model/wire.h"

namespace stockade::model {
namespace {

bool IsPayload(uint32_t number) {
    static const auto* const payloads = [] {
        auto* numbers = new std::vector<bool>;
        const auto* payload = v1::Event::descriptor()->FindOneofByName("payload");
        for (int i = 0; i < payload->field_count(); ++i) {
            const auto at = static_cast<size_t>(payload->field(i)->number());
            if (numbers->size() <= at) numbers->resize(at + 1);
            (*numbers)[at] = true;
        }
        return numbers;
    }();
    return number < payloads->size() && (*payloads)[number];
}

bool LookAtSandbox(absl::string_view bytes, EventBytes* out) {
    WireReader reader(bytes);
    for (WireField field; reader.Next(&field);) {
        switch (field.number) {
            case v1::Sandbox::kIdFieldNumber: out->sandbox = field.bytes; break;
            case v1::Sandbox::kSessionFieldNumber: out->session = field.bytes; break;
            case v1::Sandbox::kTraceFieldNumber: out->trace = field.bytes; break;
            default: break;
        }
    }
    return reader.ok();
}

bool LookAtAction(absl::string_view bytes, EventBytes* out) {
    WireReader reader(bytes);
    for (WireField field; reader.Next(&field);) out->by_person |= field.number == v1::Action::kActorUidFieldNumber;
    return reader.ok();
}

}  // namespace

std::optional<EventBytes> EventBytes::Of(absl::string_view bytes) {
    EventBytes out;
    out.bytes = bytes;
    WireReader reader(bytes);
    for (WireField field; reader.Next(&field);) {
        switch (field.number) {
            case v1::Event::kIdFieldNumber: out.id = field.bytes; break;
            case v1::Event::kTimeFieldNumber: out.time = field.bytes, out.has_time = true; break;
            case v1::Event::kBootNsFieldNumber: out.boot_ns = field.value; break;
            case v1::Event::kNodeFieldNumber: out.node = field.bytes; break;
            case v1::Event::kKindFieldNumber: out.kind = field.bytes; break;
            case v1::Event::kSandboxFieldNumber:
                if (!LookAtSandbox(field.bytes, &out)) return std::nullopt;
                break;
            case v1::Event::kKernelSeqFieldNumber: out.kernel_seq = field.value; break;
            case v1::Event::kExportSeqFieldNumber: out.export_seq = field.value; break;
            case v1::Event::kVerdictFieldNumber: out.verdict = field.bytes; break;
            case v1::Event::kChainFieldNumber: out.chain = field.bytes; break;
            default:
                if (!IsPayload(field.number)) break;
                out.payload = static_cast<v1::Event::PayloadCase>(field.number);
                if (out.payload == v1::Event::kAction && !LookAtAction(field.bytes, &out)) return std::nullopt;
                break;
        }
    }
    if (!reader.ok()) return std::nullopt;
    return out;
}

Status EventBytes::Parse(v1::Event* event) const {
    if (event->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
    return absl::InvalidArgumentError("the bytes are no event");
}

}  // namespace stockade::model
