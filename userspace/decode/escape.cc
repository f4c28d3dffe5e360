#include "userspace/decode/payload.h"

#include <sys/syscall.h>

namespace stockade::decode {

Status DecodePayload(const sk_escape& record, Context& context, v1::Event* event) {
    v1::Escape* escape = event->mutable_escape();
    SK_ASSIGN_OR_RETURN(const absl::string_view op,
                        Word(model::EscapeOps(), record.op, "escape operation", context));
    escape->set_op(std::string(op));
    escape->set_argument(record.argument);
    escape->set_target_pid(record.target_tgid);
    // The kernel tells the lock by the errno. These two say EPERM by a rule of their own (kernel/sys.c: whoever leads a
    // process group can found no session, nor change its group), and no profile of ours refuses them.
    const bool own_rule = record.argument == SYS_setsid || record.argument == SYS_setpgid;
    if (record.op == SK_ESCAPE_OTHER_CALL && own_rule && record.head.lock == SK_LOCK_SECCOMP)
        event->clear_lock();
    return absl::OkStatus();
}

}  // namespace stockade::decode
