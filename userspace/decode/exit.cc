#include "userspace/decode/payload.h"

namespace stockade::decode {

Status DecodePayload(const sk_exit& record, Context&, v1::Event* event) {
    v1::Exit* exit = event->mutable_exit();
    const uint32_t signal = record.status & 0x7f;
    if (signal == 0) exit->set_code((record.status >> 8) & 0xff);
    exit->set_signal(signal);
    exit->set_core_dumped(signal != 0 && (record.status & 0x80) != 0);
    return absl::OkStatus();
}

}  // namespace stockade::decode
