// bpf/wire as clang lays it out for BPF (by the BTF of wire.bpf.c) against bpf/wire as C++ sees
// it: same sizes, same offsets, no holes. A difference here is a record that user space reads wrong.
#include <bpf/btf.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "bpf/wire/dns.h"
#include "bpf/wire/escape.h"
#include "bpf/wire/exec.h"
#include "bpf/wire/exit.h"
#include "bpf/wire/file.h"
#include "bpf/wire/fork.h"
#include "bpf/wire/lifecycle.h"
#include "bpf/wire/net.h"
#include "bpf/wire/policy.h"
#include "bpf/wire/repeat.h"
#include "bpf/wire/slot.h"

namespace stockade {
namespace {

using BtfPtr = std::unique_ptr<struct btf, decltype(&btf__free)>;

class WireLayout : public testing::Test {
  protected:
    void SetUp() override {
        const char* object = getenv("STOCKADE_BPF_OBJECT");
        ASSERT_NE(object, nullptr) << "STOCKADE_BPF_OBJECT names no object";
        btf_.reset(btf__parse_elf(object, nullptr));
        ASSERT_NE(btf_.get(), nullptr) << object;
    }

    const btf_type* Struct(const char* name) {
        const int id = btf__find_by_name_kind(btf_.get(), name, BTF_KIND_STRUCT);
        return id > 0 ? btf__type_by_id(btf_.get(), static_cast<__u32>(id)) : nullptr;
    }

    void ExpectSize(const char* name, size_t size) {
        const btf_type* type = Struct(name);
        ASSERT_NE(type, nullptr) << name << " is not in wire.bpf.c";
        EXPECT_EQ(type->size, size) << name;
        EXPECT_EQ(size % 8, 0u) << name;
    }

    void ExpectOffset(const char* name, const char* member, size_t offset) {
        const btf_type* type = Struct(name);
        ASSERT_NE(type, nullptr) << name;
        for (int i = 0; i < btf_vlen(type); ++i) {
            const char* found = btf__name_by_offset(btf_.get(), btf_members(type)[i].name_off);
            if (std::string(found) != member) continue;
            EXPECT_EQ(btf_member_bit_offset(type, static_cast<__u32>(i)), offset * 8)
                << name << "." << member;
            return;
        }
        ADD_FAILURE() << name << " has no member " << member;
    }

    // Members one after the other, from the first byte to the last: padding would carry what
    // the ring held before.
    void ExpectNoHoles(const char* name) {
        const btf_type* type = Struct(name);
        ASSERT_NE(type, nullptr) << name << " is not in wire.bpf.c";
        __s64 at = 0;
        for (int i = 0; i < btf_vlen(type); ++i) {
            const btf_member& member = btf_members(type)[i];
            EXPECT_EQ(btf_member_bit_offset(type, static_cast<__u32>(i)), at * 8)
                << name << ": a hole before " << btf__name_by_offset(btf_.get(), member.name_off);
            at += btf__resolve_size(btf_.get(), member.type);
        }
        EXPECT_EQ(at, __s64{type->size}) << name << ": a hole at the end";
    }

    BtfPtr btf_{nullptr, btf__free};
};

TEST_F(WireLayout, RecordsHaveTheSameSizeAndNoHoles) {
#define X(number, NAME, stem)                      \
    ExpectSize("sk_" #stem, sizeof(sk_##stem));    \
    ExpectNoHoles("sk_" #stem);                    \
    ExpectOffset("sk_" #stem, "head", 0);
    SK_KINDS(X)
#undef X
    for (const char* name : {"sk_head", "sk_path", "sk_label", "sk_slot", "sk_state", "sk_config",
                             "sk_hash_keys", "sk_policy_head", "sk_entry", "sk_dns_binding", "sk_dns_budget", "sk_dns_zone",
                             "sk_dns_zone_key", "sk_dns_rule", "sk_dns_pin_key", "sk_dns_refund", "sk_dns_ask",
                             "sk_dns_sock", "sk_dns_ports", "sk_dns_pinned_key"}) {
        ExpectNoHoles(name);
    }
}

TEST_F(WireLayout, OffsetsAreTheSame) {
#define SAME(type, member) ExpectOffset(#type, #member, offsetof(type, member))
    SAME(sk_head, kernel_seq);
    SAME(sk_head, slot);
    SAME(sk_head, code);
    SAME(sk_head, kind);
    SAME(sk_head, verdict);
    SAME(sk_head, comm);
    SAME(sk_path, bytes_len);
    SAME(sk_path, bytes);
    SAME(sk_exec, path);
    SAME(sk_exec, argv_len);
    SAME(sk_exec, argv);
    SAME(sk_exit, status);
    SAME(sk_fork, child_tgid);
    SAME(sk_file, path);
    SAME(sk_file, op);
    SAME(sk_net, address);
    SAME(sk_net, port);
    SAME(sk_net, unix_path);
    SAME(sk_escape, op);
    SAME(sk_lifecycle, op);
    SAME(sk_repeat, count);
    SAME(sk_slot, policy_index);
    SAME(sk_state, condemned_ns);
    SAME(sk_state, violations);
    SAME(sk_config, live_slots);
    SAME(sk_policy_head, violation);
    SAME(sk_policy_head, prefix);
#undef SAME
}

}  // namespace
}  // namespace stockade
