#include "userspace/decode/payload.h"

namespace stockade::decode {

Status DecodePayload(const sk_fork& record, Context&, v1::Event* event) {
    v1::Fork* fork = event->mutable_fork();
    fork->set_child_pid(record.child_tgid);
    fork->set_child_start_boot_ns(record.child_start_boot_ns);
    fork->set_clone_flags(record.clone_flags);
    return absl::OkStatus();
}

}  // namespace stockade::decode
