#include "userspace/decode/decode.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bpf/wire/slot.h"
#include "userspace/decode/payload.h"
#include "userspace/model/names.h"
#include "userspace/model/operation.h"
#include "userspace/model/reason.h"
#include "userspace/model/text.h"

namespace stockade::decode {
namespace {

// 9999-12-31T23:59:59Z, the last second that a Timestamp can say.
constexpr uint64_t kMaxSeconds = 253402300799;
constexpr uint64_t kNanos = 1'000'000'000;

// Sizes by kind, from the one list.
size_t SizeOf(uint16_t kind) {
    switch (kind) {
#define X(number, NAME, stem) \
    case number:              \
        return sizeof(sk_##stem);
        SK_KINDS(X)
#undef X
        default: return 0;
    }
}

Status CheckHead(std::span<const uint8_t> record, Context* context, sk_head* head) {
    if (record.size() < sizeof(*head)) {
        return context->Fail(Reason::SHORT, absl::StrCat(record.size(), " bytes"));
    }
    memcpy(head, record.data(), sizeof(*head));
    if (head->abi != SK_RECORD_ABI) {
        context->reason = Reason::ABI;
        return absl::UnimplementedError(absl::StrCat("abi ", static_cast<int>(head->abi),
                                                     ", this agent reads ", SK_RECORD_ABI));
    }
    const size_t size = SizeOf(head->kind);
    if (size == 0) return context->Fail(Reason::KIND, absl::StrCat("kind ", head->kind));
    if (head->bytes != size) {
        return context->Fail(Reason::SIZE, absl::StrCat("kind ", head->kind, " of ", head->bytes,
                                                        " bytes, not ", size));
    }
    if (record.size() < size) {
        return context->Fail(Reason::SHORT, absl::StrCat(record.size(), " bytes of ", size));
    }
    return absl::OkStatus();
}

Status Payload(std::span<const uint8_t> bytes, uint16_t kind, Context& context,
               v1::Event* event) {
    switch (kind) {
#define X(number, NAME, stem)                                  \
    case number: {                                             \
        sk_##stem record;                                      \
        memcpy(&record, bytes.data(), sizeof(record));         \
        event->set_kind(#stem);                                \
        return DecodePayload(record, context, event);          \
    }
        SK_KINDS(X)
#undef X
        default: return context.Fail(Reason::KIND, absl::StrCat("kind ", kind));
    }
}

// A process's birth and end are nobody's verdict.
bool HasVerdict(uint16_t kind) { return kind != SK_KIND_EXIT && kind != SK_KIND_FORK; }

Status SetVerdict(const sk_head& head, Context& context, v1::Event* event) {
    SK_ASSIGN_OR_RETURN(const auto verdict,
                        Word(model::Verdicts(), head.verdict, "verdict", context));
    SK_ASSIGN_OR_RETURN(const auto outcome,
                        Word(model::Outcomes(), head.outcome, "outcome", context));
    SK_ASSIGN_OR_RETURN(const auto lock, Word(model::Locks(), head.lock, "lock", context));
    SK_ASSIGN_OR_RETURN(const auto section,
                        Word(model::Sections(), head.section, "section", context));
    SK_ASSIGN_OR_RETURN(const auto code, Word(model::Codes(), head.code, "code", context));
    if (!HasVerdict(head.kind)) return absl::OkStatus();
    event->set_verdict(std::string(verdict));
    event->set_outcome(std::string(outcome));
    if (head.lock != SK_LOCK_NONE) event->set_lock(std::string(lock));
    event->set_section(std::string(section));
    event->set_code(std::string(code));
    return absl::OkStatus();
}

void SetProcess(const sk_head& head, v1::Process* process) {
    process->set_pid(head.tgid);
    process->set_tid(head.tid);
    process->set_start_boot_ns(head.start_boot_ns);
    process->set_uid(head.uid);
    process->set_cgroup_id(head.cgroup_id);
    process->set_escaped(
        model::AppendEscaped(CString(head.comm, sizeof(head.comm)), process->mutable_comm()));
}

void SetTimes(const sk_head& head, uint64_t wall_offset_ns, v1::Event* event) {
    event->set_boot_ns(head.boot_ns);
    const uint64_t wall = head.boot_ns + wall_offset_ns;
    event->mutable_time()->set_seconds(
        static_cast<int64_t>(std::min(wall / kNanos, kMaxSeconds)));
    event->mutable_time()->set_nanos(static_cast<int32_t>(wall % kNanos));
}

void SetPolicy(const model::SandboxInfo* info, uint64_t id, v1::Policy* policy) {
    policy->set_hash(absl::StrCat(absl::Hex(id, absl::kZeroPad16)));
    if (!info) return;
    for (const model::PolicyRef& ref : info->policies) {
        if (ref.id != id) continue;
        policy->set_name(ref.name);
        if (!ref.hash.empty()) policy->set_hash(ref.hash);
        return;
    }
}

}  // namespace

absl::string_view ToString(Reason reason) {
    switch (reason) {
#define X(NAME, text) \
    case Reason::NAME: return text;
        SK_DECODE_REASONS(X)
#undef X
        case Reason::COUNT: break;
    }
    return "?";
}

Decoder::Decoder(Options options)
    : options_([&] {
          if (!options.redactor) options.redactor = &Redactor::Default();
          return std::move(options);
      }()),
      wall_offset_ns_(options_.wall_offset_ns) {}

void Decoder::Count(Reason reason) {
    counts_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

Status Decoder::Fail(Reason reason, const Status& status) {
    Count(reason);
    return Annotate(status, absl::StrCat("decode a record (", ToString(reason), ")"));
}

Status Decoder::Decode(std::span<const uint8_t> record, v1::Event* event, std::unique_ptr<v1::Event>* original) {
    event->Clear();
    sk_head head;
    Context context;
    Status status = CheckHead(record, &context, &head);
    if (status.ok()) status = SetVerdict(head, context, event);
    if (status.ok()) status = Payload(record, head.kind, context, event);
    if (!status.ok()) {
        event->Clear();
        return Fail(context.reason, status);
    }
    SetProcess(head, event->mutable_process());
    SetTimes(head, wall_offset_ns_.load(std::memory_order_relaxed), event);
    Identify(head, event);
    Explain(head, event);
    // Last, so that the sentences that were made of its strings are looked at too.
    (void)options_.redactor->Redact(event, original);  // counted there
    return absl::OkStatus();
}

void Decoder::Identify(const sk_head& head, v1::Event* event) {
    event->set_node(options_.node);
    event->set_kernel_seq(head.kernel_seq);
    const uint32_t generation = head.generation & SK_GENERATION_MASK;
    const auto info = options_.lookup ? options_.lookup(head.slot, generation) : nullptr;
    v1::Sandbox* sandbox = event->mutable_sandbox();
    if (info) {
        model::ToProto(*info, sandbox);
        event->set_id(absl::StrCat(info->id.str(), ".", head.kernel_seq));
    } else {
        Count(Reason::UNKNOWN_SANDBOX);
        sandbox->set_slot(head.slot);
        sandbox->set_generation(generation);
        event->set_id(absl::StrCat("slot", head.slot, "g", generation, ".", head.kernel_seq));
    }
    if (head.policy_id != 0) SetPolicy(info.get(), head.policy_id, event->mutable_policy());
    if (!info || !HasVerdict(head.kind)) return;
    const auto cell = info->coverage.find(model::OperationOf(*event));
    if (cell != info->coverage.end()) event->set_coverage(std::string(model::Text(cell->second)));
}

void Decoder::Explain(const sk_head& head, v1::Event* event) {
    event->set_backend(std::string(model::NameOf(model::Backends(), head.backend)));
    event->set_dry_run((head.flags & SK_RECORD_OBSERVE) != 0 && head.code != SK_CODE_OK);
    event->set_entered((head.flags & SK_RECORD_ENTERED) != 0);
    if (!HasVerdict(head.kind) || head.code == SK_CODE_OK) return;
    std::string object = model::ObjectOf(*event);
    if (head.code == SK_CODE_OTHER_LOCK) {
        const int error = event->file().error();
        const char* name = error > 0 ? strerrorname_np(error) : nullptr;
        const std::string nobody = event->has_escape() ? "the kernel's own rule" : "unknown";
        absl::StrAppend(&object, " (", event->lock().empty() ? nobody : event->lock(), name ? ", " : "",
                        name ? name : "", ")");
    }
    if (head.code == SK_CODE_ESCAPE) {
        // Operations and grants are not always called the same.
        const std::string line = model::GrantLine(model::GrantOfEscape(event->escape().op()));
        if (!line.empty()) absl::StrAppend(&object, " (", line, ")");
    }
    event->set_reason(model::ReasonSentence(head.code, object));
}

}  // namespace stockade::decode
