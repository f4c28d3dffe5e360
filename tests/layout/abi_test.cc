// What an agent adopts from another build: pinned maps and the records that still lie in their rings. A
// change of their layout needs a new kPinAbi; this test is what notices it.
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/sha256.h"
#include "userspace/kernel/pins.h"

namespace stockade {
namespace {

// One line for each map that is pinned, by name.
std::string MapsText(bpf_object* object) {
    std::map<std::string, std::string> lines;
    const bpf_map* map = nullptr;
    bpf_object__for_each_map(map, object) {
        const std::string name = bpf_map__name(map);
        if (absl::StrContains(name, '.')) continue;  // data of one set of programs
        lines[name] = absl::StrCat("map ", name, " type ", bpf_map__type(map), " key ",
                                   bpf_map__key_size(map), " value ", bpf_map__value_size(map), " entries ",
                                   bpf_map__max_entries(map), " flags ", bpf_map__map_flags(map), "\n");
    }
    std::string text;
    for (const auto& [name, line] : lines) text += line;
    return text;
}

// One line for each struct and union of bpf/wire, by name: its members with offset and size.
std::string StructsText(const btf* types) {
    std::map<std::string, std::string> lines;
    for (__u32 id = 1; id < btf__type_cnt(types); ++id) {
        const btf_type* type = btf__type_by_id(types, id);
        const std::string name = btf__name_by_offset(types, type->name_off);
        if (!btf_is_composite(type) || !absl::StartsWith(name, "sk_")) continue;
        std::string line = absl::StrCat(name, " ", type->size, ":");
        for (__u32 i = 0; i < btf_vlen(type); ++i) {
            const btf_member& member = btf_members(type)[i];
            absl::StrAppend(&line, " ", btf__name_by_offset(types, member.name_off), "@",
                            btf_member_bit_offset(type, i) / 8, "+", btf__resolve_size(types, member.type));
        }
        lines[name] = line + "\n";
    }
    std::string text;
    for (const auto& [name, line] : lines) text += line;
    return text;
}

TEST(PinAbi, IsOfThisLayout) {
    const char* guard = getenv("STOCKADE_GUARD_OBJECT");
    const char* wire = getenv("STOCKADE_BPF_OBJECT");
    ASSERT_TRUE(guard != nullptr && wire != nullptr) << "the environment names no objects";
    std::unique_ptr<bpf_object, decltype(&bpf_object__close)> object(bpf_object__open(guard),
                                                                     bpf_object__close);
    ASSERT_NE(object, nullptr) << guard;
    std::unique_ptr<btf, decltype(&btf__free)> types(btf__parse_elf(wire, nullptr), btf__free);
    ASSERT_NE(types, nullptr) << wire;
    const std::string text = MapsText(object.get()) + StructsText(types.get());
    ASSERT_TRUE(absl::StrContains(text, "map slots ") && absl::StrContains(text, "sk_slot ")) << text;
    EXPECT_EQ(Sha256Hex(text).substr(0, 16), kernel::kPinLayout)
        << "The layout of maps or records is another. Bump the abi: once for each release, kPinAbi in "
           "userspace/kernel/pins.h; then set kPinLayout to what stands above. It is now:\n"
        << text;
}

}  // namespace
}  // namespace stockade
