// Records as the kernel would write them, for tests of decode and of what comes after it.
#pragma once

#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bpf/wire/policy.h"
#include "userspace/decode/payload.h"

namespace stockade::decode {

inline std::shared_ptr<const model::SandboxInfo> TestSandbox() {
    model::SandboxInfo info;
    info.id = model::SandboxId::FromParts(1469918176385, 0, 1);
    info.labels = {.session = "s1", .tool = "python"};
    info.runtime = "native";
    info.policies = {{0x1122334455667788, "python-tool", "1122334455667788aa"}};
    info.coverage = {{"open_read", model::Cell::kKilledAfterEffect},
                     {"exec_program", model::Cell::kPrevented}};
    return std::make_shared<const model::SandboxInfo>(std::move(info));
}

// Slot 1, generation 2 is TestSandbox().
inline SandboxLookup TestLookup() {
    return [info = TestSandbox()](uint32_t slot, uint32_t generation) {
        return slot == 1 && generation == 2 ? info : nullptr;
    };
}

template <typename Record>
Record MakeRecord(uint16_t kind, uint64_t seq) {
    Record record;
    memset(static_cast<void*>(&record), 0, sizeof(record));
    sk_head& head = record.head;
    head.boot_ns = 5'000'000'000;
    head.kernel_seq = seq;
    head.policy_id = 0x1122334455667788;
    head.start_boot_ns = 4'000'000'000;
    head.slot = 1;
    head.generation = 2;
    head.tgid = 100;
    head.tid = 100;
    head.uid = 1000;
    head.kind = kind;
    head.bytes = sizeof(record);
    head.abi = SK_RECORD_ABI;
    memcpy(head.comm, "python3", 7);
    return record;
}

inline void Refuse(sk_head* head, sk_code code, sk_section section) {
    head->code = code;
    head->section = section;
    head->verdict = SK_VERDICT_KILL_SANDBOX;
    head->outcome = SK_OUTCOME_PREVENTED;
    head->lock = SK_LOCK_BPF;
    head->backend = SK_BACKEND_LSM;
}

// Root first, as a person writes them.
inline void SetPath(std::initializer_list<absl::string_view> components, sk_path* path) {
    path->inode = 42;
    path->device = 8 << 20 | 1;
    for (auto it = components.end(); it != components.begin();) {
        --it;
        path->bytes[path->bytes_len++] = static_cast<uint8_t>(it->size());
        memcpy(path->bytes + path->bytes_len, it->data(), it->size());
        path->bytes_len = static_cast<uint16_t>(path->bytes_len + it->size());
        ++path->components;
    }
}

inline void SetArgv(absl::string_view bytes, uint32_t argc, sk_exec* record) {
    memcpy(record->argv, bytes.data(), bytes.size());
    record->argv_len = static_cast<uint16_t>(bytes.size());
    record->argc = argc;
}

template <typename Record>
std::span<const uint8_t> Bytes(const Record& record) {
    return {reinterpret_cast<const uint8_t*>(&record), sizeof(record)};
}

}  // namespace stockade::decode
