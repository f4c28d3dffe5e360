// How large each program is in the object, whatever the kernel, those of the backend that is not here included.
#include <bpf/libbpf.h>
#include <gelf.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/layout/program_record.h"
#include "userspace/base/fd.h"

namespace stockade::layout {
namespace {

constexpr uint64_t kInstructionBytes = 8;

// Functions that programs call, and loop bodies: all in one section, and loaded with each program that uses them.
uint64_t SharedInstructions(const std::string& text) {
    if (elf_version(EV_CURRENT) == EV_NONE) return 0;
    std::string copy = text;
    Elf* elf = elf_memory(copy.data(), copy.size());
    size_t names = 0;
    uint64_t bytes = 0;
    if (elf != nullptr && elf_getshdrstrndx(elf, &names) == 0) {
        for (Elf_Scn* section = elf_nextscn(elf, nullptr); section != nullptr;
             section = elf_nextscn(elf, section)) {
            GElf_Shdr header;
            if (gelf_getshdr(section, &header) == nullptr) continue;
            const char* name = elf_strptr(elf, names, header.sh_name);
            if (name != nullptr && std::strcmp(name, ".text") == 0) bytes = header.sh_size;
        }
    }
    elf_end(elf);
    return bytes / kInstructionBytes;
}

TEST(ProgramSize, IsThatOfTheRecord) {
    const char* path = std::getenv("STOCKADE_GUARD_OBJECT");
    ASSERT_NE(path, nullptr) << "the environment names no object";
    const auto text = ReadFile(path, 64 << 20);
    ASSERT_TRUE(text.ok()) << text.status();
    std::unique_ptr<bpf_object, decltype(&bpf_object__close)> object(bpf_object__open(path),
                                                                     &bpf_object__close);
    ASSERT_NE(object, nullptr);
    Figures found = {{".text", SharedInstructions(*text)}};
    bpf_program* program = nullptr;
    bpf_object__for_each_program(program, object.get()) {
        found[bpf_program__name(program)] = bpf_program__insn_cnt(program);
    }
    EXPECT_GT(found.size(), 20u);
    EXPECT_GT(found[".text"], 0u);
    ProgramRecord().Expect("INSTRUCTIONS", found);
}

}  // namespace
}  // namespace stockade::layout
