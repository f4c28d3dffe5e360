// The stub between dig and a real unbound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tests/dns/stub_fixture.h"
#include "tests/dns/unbound.h"

namespace stockade {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

// A record in dig's output. TTLs count down while a test runs.
testing::Matcher<const std::string&> Record(const std::string& owner, const std::string& type,
                                            const std::string& data) {
    return testing::ContainsRegex(absl::StrCat("\n", owner, "\\.[\t]+[0-9]+\tIN\t", type, "\t", data));
}

std::string Zone() {
    std::string zone = R"($TTL 300
@       IN SOA ns.test. admin.test. 1 3600 600 86400 120
@       IN NS ns.test.
ns      IN A 127.0.0.1
a       IN A 10.0.0.1
a       IN A 10.0.0.2
a       IN AAAA fd00::1
only4   IN A 10.0.0.3
c1      IN CNAME c2.test.
c2      IN CNAME c3.test.
c3      IN A 10.0.0.4
c3      IN AAAA fd00::4
dangle  IN CNAME gone.test.
txt     IN TXT "hello" "world"
mx      IN MX 10 mail.test.
_x._tcp IN SRV 1 2 443 a.test.
web     IN HTTPS 1 . alpn=h2 ipv4hint=10.0.0.5 ipv6hint=fd00::5
1.0.0   IN PTR host.test.
)";
    // 900 bytes: fits between unbound and the stub, not into a plain UDP answer. 5,000: comes by TCP all the way.
    for (int i = 0; i < 9; ++i) absl::StrAppend(&zone, "middle IN TXT ", i, std::string(90, 'm'), "\n");
    for (int i = 0; i < 50; ++i) absl::StrAppend(&zone, "large IN TXT ", i, std::string(98, 'l'), "\n");
    // With owners of 60 characters, an answer by the hundred names.
    for (int i = 0; i < 300; ++i)
        absl::StrAppend(&zone, "many IN MX ", i, " ", std::string(50, 'n'), i, ".test.\n");
    return zone;
}

class StubUnboundTest : public StubTest {
  protected:
    void SetUp() override {
        auto unbound = Unbound::Start(Zone());
        ASSERT_TRUE(unbound.ok()) << unbound.status();
        unbound_ = *std::move(unbound);
        Start({unbound_->address()}, {});
    }

    // What dig prints.
    std::string Dig(const std::string& arguments) const {
        const std::string command =
            absl::StrCat("dig @127.0.0.1 -p ", port_, " +tries=1 +time=20 +nostats ", arguments, " 2>&1");
        FILE* pipe = popen(command.c_str(), "r");
        std::string out;
        for (int c; (c = fgetc(pipe)) != EOF;) out.push_back(static_cast<char>(c));
        EXPECT_EQ(pclose(pipe), 0) << out;
        EXPECT_THAT(out, Not(HasSubstr("WARNING"))) << out;
        return out;
    }
    // Over both; from the second on it comes from the cache.
    void ExpectBoth(const std::string& arguments, const testing::Matcher<const std::string&>& matcher) const {
        EXPECT_THAT(Dig(arguments), matcher);
        EXPECT_THAT(Dig(arguments + " +tcp"), matcher);
    }

    std::unique_ptr<Unbound> unbound_;
};

TEST_F(StubUnboundTest, Addresses) {
    ExpectBoth("a.test A",
               AllOf(HasSubstr("status: NOERROR"), HasSubstr("flags: qr rd ra;"), HasSubstr("ANSWER: 2"),
                     HasSubstr("IN\tA\t10.0.0.1\n"), HasSubstr("IN\tA\t10.0.0.2\n")));
    ExpectBoth("a.test AAAA", HasSubstr("IN\tAAAA\tfd00::1\n"));
    EXPECT_THAT(Dig("A.TesT A +noedns"),
                AllOf(HasSubstr(";A.TesT."), HasSubstr("A.TesT."), Not(HasSubstr("EDNS"))));
    EXPECT_THAT(told()[0].addresses, SizeIs(2));
    EXPECT_EQ(counters().forwarded, 2u);
    EXPECT_EQ(counters().cache_hits, 3u);
}

TEST_F(StubUnboundTest, ChainOfCnames) {
    ExpectBoth("c1.test A", AllOf(Record("c1.test", "CNAME", "c2.test"),
                                  Record("c2.test", "CNAME", "c3.test"), Record("c3.test", "A", "10.0.0.4")));
    EXPECT_THAT(told()[0].names, ElementsAre("c1.test", "c2.test", "c3.test"));
    EXPECT_THAT(Dig("c1.test CNAME"), AllOf(HasSubstr("ANSWER: 1"), HasSubstr("CNAME\tc2.test.\n")));
    // The end of a chain that is not there, and one without that type.
    EXPECT_THAT(Dig("dangle.test A"),
                AllOf(HasSubstr("NXDOMAIN"), HasSubstr("CNAME\tgone.test."), HasSubstr("SOA")));
    EXPECT_THAT(Dig("c1.test TXT"), AllOf(HasSubstr("NOERROR"), HasSubstr("ANSWER: 2"), HasSubstr("SOA")));
}

TEST_F(StubUnboundTest, OtherTypes) {
    ExpectBoth("txt.test TXT", HasSubstr("TXT\t\"hello\" \"world\"\n"));
    ExpectBoth("mx.test MX", HasSubstr("MX\t10 mail.test.\n"));
    ExpectBoth("_x._tcp.test SRV", HasSubstr("SRV\t1 2 443 a.test.\n"));
    ExpectBoth("web.test HTTPS", HasSubstr("HTTPS\t1 . alpn=\"h2\" ipv4hint=10.0.0.5 ipv6hint=fd00::5\n"));
    ExpectBoth("1.0.0.test PTR", HasSubstr("PTR\thost.test.\n"));
    ExpectBoth("test NS", HasSubstr("NS\tns.test.\n"));
    ExpectBoth("test SOA",
               AllOf(HasSubstr("ANSWER: 1"), HasSubstr("SOA\tns.test. admin.test. 1 3600 600 86400 120\n")));
    EXPECT_EQ(counters().broken_answers, 0u);
}

TEST_F(StubUnboundTest, NoSuchNameAndNoData) {
    ExpectBoth("nope.test A", AllOf(HasSubstr("status: NXDOMAIN"), HasSubstr("AUTHORITY: 1"),
                                    Record("test", "SOA", "ns.test")));
    ExpectBoth("only4.test AAAA",
               AllOf(HasSubstr("status: NOERROR"), HasSubstr("ANSWER: 0"), Record("test", "SOA", "ns.test")));
    EXPECT_EQ(counters().forwarded, 2u);
}

TEST_F(StubUnboundTest, LargeAnswersComeOverTcp) {
    const auto by_tcp = HasSubstr(";; Truncated, retrying in TCP mode.");
    EXPECT_THAT(Dig("middle.test TXT"), AllOf(Not(by_tcp), HasSubstr("ANSWER: 9")));
    EXPECT_EQ(counters().truncated_upstream, 0u);
    EXPECT_THAT(Dig("middle.test TXT +noedns"), AllOf(by_tcp, HasSubstr("ANSWER: 9")));
    EXPECT_THAT(Dig("large.test TXT +bufsize=4096"), AllOf(by_tcp, HasSubstr("ANSWER: 50")));
    EXPECT_THAT(Dig("many.test MX"), AllOf(by_tcp, HasSubstr("ANSWER: 300")));
    EXPECT_GE(counters().truncated_upstream, 2u);
    EXPECT_THAT(Dig("large.test TXT +ignore"),
                AllOf(HasSubstr("flags: qr tc rd ra;"), HasSubstr("ANSWER: 0")));
}

}  // namespace
}  // namespace stockade
