#include "userspace/policy/dns_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"

namespace stockade::policy {
namespace {

TEST(DnsNames, AWildcardIsAllBelow) {
    EXPECT_TRUE(CoversName("pypi.org", "pypi.org"));
    EXPECT_FALSE(CoversName("pypi.org", "a.pypi.org"));
    EXPECT_TRUE(CoversName("*.pypi.org", "files.pypi.org"));
    EXPECT_TRUE(CoversName("*.pypi.org", "a.b.pypi.org"));
    EXPECT_FALSE(CoversName("*.pypi.org", "pypi.org"));
    EXPECT_FALSE(CoversName("*.pypi.org", "xpypi.org"));
    EXPECT_FALSE(CoversName("*.pypi.org", ".pypi.org"));
}

TEST(DnsNames, Budgets) {
    EXPECT_EQ(*ParseDnsBudget("256B"), 256u);
    EXPECT_EQ(*ParseDnsBudget("256"), 256u);
    EXPECT_EQ(*ParseDnsBudget("4KiB"), 4096u);
    EXPECT_EQ(*ParseDnsBudget("none"), kNoDnsBudget);
    for (const char* bad : {"", "B", "-1", " 1", "4KB", "1.5KiB", "2000000KiB", "99999999999999999999"}) {
        EXPECT_FALSE(ParseDnsBudget(bad).ok()) << bad;
    }
}

std::optional<ResolvedPolicy> Resolved(const std::string& spec, std::string* errors) {
    std::vector<Diagnostic> diagnostics;
    PolicyLibrary library;
    ParseResult parsed = ParseFiles(
        {{"t.yaml", "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: t}\nspec:\n" + spec}});
    for (const Diagnostic& d : parsed.diagnostics) *errors += ToString(d) + "\n";
    library.Add(std::move(parsed.policies), diagnostics);
    return library.Resolve("t", diagnostics);
}

TEST(DnsNames, RulesByNameNeedDnsAndListTheirNames) {
    std::string errors;
    const auto policy = Resolved("  network: {allow: [{name: \"*.pypi.org\", ports: [443]}, {cidr: 10.0.0.0/8}]}\n", &errors);
    ASSERT_TRUE(policy) << errors;
    EXPECT_TRUE(NeedsDns(*policy));
    EXPECT_EQ(DnsModeOf(*policy), SK_DNS_ALLOWLIST);
    EXPECT_THAT(ResolvableNames(*policy), testing::ElementsAre("*.pypi.org"));
    const auto plain = Resolved("  network: {allow: [{cidr: 10.0.0.0/8}]}\n", &errors);
    EXPECT_FALSE(NeedsDns(*plain));
    const auto closed = Resolved("  dns: {mode: closed}\n", &errors);
    EXPECT_FALSE(NeedsDns(*closed));
    EXPECT_EQ(errors, "");
}

TEST(DnsNames, WhatIsWrongIsToldWithItsPlace) {
    std::string errors;
    (void)Resolved("  dns:\n    allow: [Pypi.org]\n    resolvers: [dns.example, 10.0.0.0/8]\n    budget: {zone: 1MB}\n", &errors);
    EXPECT_THAT(errors, testing::HasSubstr("t.yaml:6:13: error: bad name 'Pypi.org'"));
    EXPECT_THAT(errors, testing::HasSubstr("t.yaml:7:17: error: bad resolver 'dns.example'"));
    EXPECT_THAT(errors, testing::HasSubstr("bad resolver '10.0.0.0/8'"));
    EXPECT_THAT(errors, testing::HasSubstr("'1MB' is no budget"));
}

TEST(DnsNames, AGrantIsOfAZone) {
    for (const char* zone : {"example.com", "a.b.c.d.e.f.g.h"}) EXPECT_TRUE(IsDnsZone(zone)) << zone;
    for (const char* bad : {"com", "*.example.com", "Example.com", "example.com.", "a.b.c.d.e.f.g.h.i"})
        EXPECT_FALSE(IsDnsZone(bad)) << bad;
    std::string errors;
    (void)Resolved("  dns:\n    grants: {com: 4KiB, example.com: lots}\n", &errors);
    EXPECT_THAT(errors, testing::HasSubstr("t.yaml:6:14: error: bad zone 'com'"));
    EXPECT_THAT(errors, testing::HasSubstr("t.yaml:6:38: error: 'lots' is no budget"));
}

TEST(DnsNames, TheNearestGrantHolds) {
    std::string errors;
    const auto policy = Resolved("  dns: {mode: open, grants: {example.com: 4KiB, cdn.example.com: none}}\n", &errors);
    ASSERT_TRUE(policy) << errors;
    EXPECT_EQ(DnsGrantOf(*policy, "www.example.com")->bytes, 4096u);
    EXPECT_EQ(DnsGrantOf(*policy, "example.com")->bytes, 4096u);
    EXPECT_EQ(DnsGrantOf(*policy, "a.cdn.example.com")->bytes, kNoDnsBudget);
    EXPECT_EQ(DnsGrantOf(*policy, "notexample.com"), nullptr);
}

}  // namespace
}  // namespace stockade::policy
