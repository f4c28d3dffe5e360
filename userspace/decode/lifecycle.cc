#include "absl/strings/str_cat.h"
#include "userspace/decode/payload.h"
#include "userspace/model/lifecycle.h"

namespace stockade::decode {

static_assert(int{SK_LIFECYCLE_CONDEMNED} == int{model::LIFECYCLE_CONDEMNED});
static_assert(int{SK_LIFECYCLE_ENTERED} == int{model::LIFECYCLE_ENTERED});
static_assert(int{SK_LIFECYCLE_EMPTY} == int{model::LIFECYCLE_EMPTY});

Status DecodePayload(const sk_lifecycle& record, Context& context, v1::Event* event) {
    // The agent's own steps cannot come out of a ring.
    if (record.op >= model::LIFECYCLE_REGISTERED) {
        return context.Fail(Reason::VALUE, absl::StrCat("lifecycle step ", record.op));
    }
    SK_ASSIGN_OR_RETURN(const absl::string_view op,
                        Word(model::LifecycleOps(), record.op, "lifecycle step", context));
    v1::Lifecycle* lifecycle = event->mutable_lifecycle();
    lifecycle->set_op(std::string(op));
    lifecycle->set_tasks(record.tasks);
    return absl::OkStatus();
}

}  // namespace stockade::decode
