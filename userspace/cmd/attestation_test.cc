#include "userspace/cmd/attestation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "userspace/cmd/landlock_rules.h"
#include "userspace/kernel/probe.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"

namespace stockade::cmd {
namespace {

using model::Cell;
using model::Feature;
using testing::HasSubstr;

constexpr LandlockCover kAll{.files = true, .directories = true};

model::FeatureSet Missing(Feature feature) {
    model::FeatureSet missing;
    missing.set(static_cast<size_t>(feature));
    return missing;
}

LandlockChoice Choice(const std::string& spec) {
    policy::ParseResult parsed =
        policy::ParseFiles({{"t.yaml", absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\n"
                                                    "metadata: {name: t}\nspec: ",
                                                    spec, "\n")}});
    std::vector<policy::Diagnostic> diagnostics = parsed.diagnostics;
    policy::PolicyLibrary library;
    library.Add(std::move(parsed.policies), diagnostics);
    EXPECT_FALSE(policy::HasErrors(diagnostics)) << policy::ToString(diagnostics.front());
    const policy::ResolvedPolicy resolved = *library.Resolve("t");
    const auto compiled = policy::Compile(resolved, {.k1 = 0x9e3779b97f4a7c15, .k2 = 0xd6e8feb86659fd93, .seed = 5});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return LandlockFor(resolved, *compiled, kernel::Backend::kSignal, false);
}

TEST(Attestation, LandlockPreventsUnderSignalWhereADomainWasMade) {
    EXPECT_EQ(AttestedCoverage(kernel::Backend::kSignal, {}, kAll).at("open_read"), Cell::kPrevented);
    EXPECT_EQ(AttestedCoverage(kernel::Backend::kSignal, {}, kAll).at("unlink"), Cell::kPrevented);
}

// The base lets "/" be listed, and Landlock then all below it.
TEST(Attestation, ListingTheRootIsListingEverything) {
    const auto cell = [](const LandlockChoice& choice) {
        const LandlockCover cover{.files = HasFileDomain(choice.domain), .directories = HidesDirectories(choice.domain)};
        const auto table = AttestedCoverage(kernel::Backend::kSignal, {}, cover);
        EXPECT_EQ(table.at("open_read"), Cell::kPrevented);
        return table.at("open_directory");
    };
    EXPECT_EQ(cell(Choice("{files: {read: [/usr/**], write: [/tmp/**]}}")), Cell::kKilledAfterEffect);
    EXPECT_EQ(cell(Choice("{extends: [], files: {read: [/usr/**], write: [/tmp/**]}}")), Cell::kPrevented);
}

TEST(Attestation, AKernelWithoutLandlockIsNotCreditedWithIt) {
    const auto table = AttestedCoverage(kernel::Backend::kSignal, Missing(Feature::LANDLOCK), kAll);
    EXPECT_EQ(table.at("open_read"), Cell::kKilledAfterEffect);
    EXPECT_EQ(table.at("unlink"), Cell::kSeen);
}

TEST(Attestation, LandlockIsCreditedWithTruncateSinceAbi3) {
    const auto cells = [](int abi) {
        kernel::ProbeReport report;
        kernel::SetLandlockAbi(report, abi);
        return AttestedCoverage(kernel::Backend::kSignal, report.missing(), kAll);
    };
    EXPECT_EQ(cells(2).at("truncate"), Cell::kSeen);
    EXPECT_EQ(cells(2).at("open_truncate"), Cell::kKilledAfterEffect);
    EXPECT_EQ(cells(2).at("unlink"), Cell::kPrevented);
    EXPECT_EQ(cells(3).at("truncate"), Cell::kPrevented);
    EXPECT_EQ(cells(3).at("open_truncate"), Cell::kPrevented);
}

TEST(Attestation, ASandboxWithoutADomainIsNotCreditedWithIt) {
    const auto table = AttestedCoverage(kernel::Backend::kSignal, {}, {});
    EXPECT_EQ(table.at("open_read"), Cell::kKilledAfterEffect);
    // BPF prevents by itself.
    EXPECT_EQ(AttestedCoverage(kernel::Backend::kLsm, {}, {}).at("open_read"), Cell::kPrevented);
}

TEST(Attestation, RowsAreTheWholeTableInItsOrder) {
    const std::vector<CoverageRow> rows = CoverageRows(AttestedCoverage(kernel::Backend::kLsm, {}, kAll));
    ASSERT_EQ(rows.size(), model::Operations().size());
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].operation, model::Operations()[i].id);
}

TEST(LandlockRules, APolicyOfFilesGetsADomain) {
    const LandlockChoice choice = Choice("{files: {read: [/usr/**]}}");
    EXPECT_TRUE(HasFileDomain(choice.domain));
    EXPECT_EQ(choice.left_out, "");
    EXPECT_FALSE(HasFileDomain(Choice("{network: {}}").domain));
    EXPECT_FALSE(HasFileDomain(Choice("{mode: observe, files: {}}").domain));
}

TEST(LandlockRules, MorePathsThanTheLauncherOpensAreSaid) {
    std::string paths;
    for (int i = 0; i < 4200; ++i) absl::StrAppend(&paths, i == 0 ? "" : ", ", "/d", i, "/f");
    const LandlockChoice choice = Choice(absl::StrCat("{files: {read: [", paths, "]}}"));
    EXPECT_FALSE(HasFileDomain(choice.domain));
    EXPECT_THAT(choice.left_out, HasSubstr("no Landlock: policy t needs 4"));
    EXPECT_EQ(Choice("{network: {}}").left_out, "");
}

}  // namespace
}  // namespace stockade::cmd
