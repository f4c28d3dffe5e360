// Inside decode: one function for each kind of bpf/wire/kinds.h, in <stem>.cc.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "bpf/wire/dns.h"
#include "bpf/wire/escape.h"
#include "bpf/wire/exec.h"
#include "bpf/wire/exit.h"
#include "bpf/wire/file.h"
#include "bpf/wire/fork.h"
#include "bpf/wire/lifecycle.h"
#include "bpf/wire/net.h"
#include "bpf/wire/repeat.h"
#include "userspace/decode/decode.h"
#include "userspace/model/names.h"

namespace stockade::decode {

// What a payload function may use, and where it says why it failed.
struct Context {
    Reason reason = Reason::COUNT;

    Status Fail(Reason why, absl::string_view what);
};

#define X(number, NAME, stem) \
    Status DecodePayload(const sk_##stem& record, Context& context, v1::Event* event);
SK_KINDS(X)
#undef X

// The word for `number`; kInvalidArgument naming `what` when the table has none.
StatusOr<absl::string_view> Word(model::Table table, uint32_t number, absl::string_view what,
                                 Context& context);

// Turns the components round: "/a/b". See PathDetail in event.proto for the odd cases.
Status DecodePath(const sk_path& path, Context& context, std::string* text,
                  v1::PathDetail* detail);

// Up to the first NUL, at most `size` bytes.
absl::string_view CString(const char* bytes, size_t size);

}  // namespace stockade::decode
