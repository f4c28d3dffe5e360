#include "userspace/decode/payload.h"

namespace stockade::decode {

Status DecodePayload(const sk_repeat& record, Context&, v1::Event* event) {
    v1::Repeat* repeat = event->mutable_repeat();
    repeat->set_count(record.count);
    repeat->set_first_boot_ns(record.first_boot_ns);
    return absl::OkStatus();
}

}  // namespace stockade::decode
