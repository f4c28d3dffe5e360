#include "userspace/decode/payload.h"

namespace stockade::decode {

Status DecodePayload(const sk_escape& record, Context& context, v1::Event* event) {
    v1::Escape* escape = event->mutable_escape();
    SK_ASSIGN_OR_RETURN(const absl::string_view op,
                        Word(model::EscapeOps(), record.op, "escape operation", context));
    escape->set_op(std::string(op));
    escape->set_argument(record.argument);
    escape->set_target_pid(record.target_tgid);
    return absl::OkStatus();
}

}  // namespace stockade::decode
