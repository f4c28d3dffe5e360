// How many instructions the verifier walked for each program: what grows before a kernel refuses one.
#include <gtest/gtest.h>
#include <sys/utsname.h>

#include <iostream>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/layout/program_record.h"
#include "userspace/kernel/sensor.h"

namespace stockade::layout {
namespace {

// Kernels differ twofold in the same program. A quarter of what the verifier takes (BPF_COMPLEXITY_LIMIT_INSNS, a million)
// is left alone by all that were measured.
constexpr uint64_t kOnAnyKernel = 250'000;

// "6.18" of "6.18.44-cloud".
std::string Series() {
    utsname name{};
    uname(&name);
    std::vector<std::string> parts = absl::StrSplit(name.release, absl::MaxSplits('.', 2));
    parts.resize(std::min<size_t>(parts.size(), 2));
    return absl::StrJoin(parts, ".");
}

TEST(VerifiedInstructions, AreThoseOfTheRecord) {
    auto sensor = kernel::Sensor::Create({.pin_dir = ""});
    ASSERT_TRUE(sensor.ok()) << sensor.status();
    auto programs = (*sensor)->Programs();
    ASSERT_TRUE(programs.ok()) << programs.status();
    Figures found;
    for (const auto& program : *programs) {
        found[program.name] = program.verified_instructions;
        EXPECT_GT(program.verified_instructions, 0u) << program.name;
        EXPECT_LT(program.verified_instructions, kOnAnyKernel) << program.name;
    }
    // The backends load different programs, and each has its figures.
    const std::string column =
        absl::StrCat(Series(), (*sensor)->backend() == kernel::Backend::kLsm ? "-lsm" : "-signal");
    ProgramRecord record;
    if (record.Has(column) || std::getenv("STOCKADE_RENEW_RECORD") != nullptr) {
        record.Expect(column, found);
    } else {
        std::cout << "programs.record has no column " << column << ": no more than the bound is tested\n";
    }
}

}  // namespace
}  // namespace stockade::layout
