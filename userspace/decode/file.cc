#include "userspace/decode/payload.h"

namespace stockade::decode {

Status DecodePayload(const sk_file& record, Context& context, v1::Event* event) {
    v1::File* file = event->mutable_file();
    SK_ASSIGN_OR_RETURN(const absl::string_view op,
                        Word(model::FileOps(), record.op, "file operation", context));
    file->set_op(std::string(op));
    SK_RETURN_IF_ERROR(
        DecodePath(record.path, context, file->mutable_path(), file->mutable_path_detail()));
    if (record.head.flags & SK_RECORD_UNVERIFIED) file->mutable_path_detail()->set_unverified(true);
    file->set_open_flags(record.open_flags);
    file->set_error(record.error);
    return absl::OkStatus();
}

}  // namespace stockade::decode
