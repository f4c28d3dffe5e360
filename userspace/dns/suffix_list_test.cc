#include "userspace/dns/suffix_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "userspace/dns/embedded.h"
#include "userspace/dns/punycode.h"

namespace stockade::dns {
namespace {

using testing::HasSubstr;

const SuffixList& Shipped() {
    static const SuffixList* const list = new SuffixList(*SuffixList::Parse(EmbeddedSuffixList()));
    return *list;
}

std::string Found(absl::string_view name) {
    const Zone zone = Shipped().Find(name);
    return absl::StrCat(zone.registered, " ", zone.icann);
}

TEST(SuffixList, TheLongestRuleDecides) {
    EXPECT_EQ(Found("example.com"), "example.com example.com");
    EXPECT_EQ(Found("a.b.example.com"), "example.com example.com");
    EXPECT_EQ(Found("a.b.example.co.uk"), "example.co.uk example.co.uk");
    EXPECT_EQ(Found("com"), " ");
    EXPECT_EQ(Found("co.uk"), " ");
    EXPECT_EQ(Found(""), " ");
}

TEST(SuffixList, WildcardsAndTheirExceptions) {
    EXPECT_EQ(Found("x.y.anything.ck"), "y.anything.ck y.anything.ck");
    EXPECT_EQ(Found("anything.ck"), " ");
    EXPECT_EQ(Found("a.www.ck"), "www.ck www.ck");
    EXPECT_EQ(Found("www.ck"), "www.ck www.ck");
    EXPECT_EQ(Found("a.city.kawasaki.jp"), "city.kawasaki.jp city.kawasaki.jp");
    EXPECT_EQ(Found("a.b.c.kawasaki.jp"), "b.c.kawasaki.jp b.c.kawasaki.jp");
}

TEST(SuffixList, RulesOfProvidersAreToldApart) {
    EXPECT_EQ(Found("a.b.github.io"), "b.github.io github.io");
    EXPECT_EQ(Found("github.io"), " github.io");
    EXPECT_EQ(Found("x.foo.duckdns.org"), "foo.duckdns.org duckdns.org");
    EXPECT_EQ(Found("a.b.s3.amazonaws.com"), "b.s3.amazonaws.com amazonaws.com");
}

TEST(SuffixList, AnUnknownTopLevelDomainIsASuffix) {
    EXPECT_EQ(Found("a.b.nosuchtld"), "b.nosuchtld b.nosuchtld");
    EXPECT_FALSE(Shipped().Find("a.nosuchtld").known);
    EXPECT_TRUE(Shipped().Find("a.com").known);
    EXPECT_EQ(Found("printer"), " ");
}

TEST(SuffixList, UnicodeRulesMatchALabels) {
    EXPECT_EQ(*ToAscii("公司.cn"), "xn--55qx5d.cn");
    EXPECT_EQ(*ToAscii("bücher.example"), "xn--bcher-kva.example");
    EXPECT_EQ(*ToAscii("한국"), "xn--3e0b707e");
    EXPECT_EQ(Found("a.b.xn--55qx5d.cn"), "b.xn--55qx5d.cn b.xn--55qx5d.cn");
    EXPECT_FALSE(ToAscii("\xff.cn").ok());
    EXPECT_FALSE(ToAscii(std::string(30000, '\xc3') + "\xbc").ok());
}

std::string ErrorOf(absl::string_view rules) {
    return std::string(
        SuffixList::Parse(
            absl::StrCat("// ===BEGIN ICANN DOMAINS===\ncom\n", rules,
                         "\n// ===END ICANN DOMAINS===\n// ===BEGIN PRIVATE DOMAINS===\ngithub.io\n"
                         "// ===END PRIVATE DOMAINS===\n"),
            0)
            .status()
            .message());
}

TEST(SuffixList, ABrokenListIsRefusedWithItsLine) {
    EXPECT_EQ(ErrorOf("net"), "");
    EXPECT_THAT(ErrorOf("com"), HasSubstr("line 3: the rule stands there already"));
    EXPECT_THAT(ErrorOf("a..b"), HasSubstr("line 3: label of 0 bytes"));
    EXPECT_THAT(ErrorOf("a.*.b"), HasSubstr("line 3: a character that no host name has"));
    EXPECT_THAT(ErrorOf("\xff\xfe"), HasSubstr("line 3: not UTF-8"));
    EXPECT_THAT(SuffixList::Parse("com\n").status().message(), HasSubstr("outside"));
    EXPECT_THAT(SuffixList::Parse("").status().message(), HasSubstr("section is missing"));
    const absl::string_view half = EmbeddedSuffixList().substr(0, EmbeddedSuffixList().size() / 2);
    EXPECT_FALSE(SuffixList::Parse(half).ok());
    EXPECT_THAT(
        SuffixList::Parse("// ===BEGIN ICANN DOMAINS===\ncom\n// ===BEGIN PRIVATE DOMAINS===\na.com\n")
            .status()
            .message(),
        HasSubstr("was it cut?"));
}

}  // namespace
}  // namespace stockade::dns
