// `stockade dns meter` over the recorded traffic: every tunnel caught, almost nobody else, hostile
// files named with their byte.
#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"

namespace stockade {
namespace {

using google::protobuf::Struct;
using testing::HasSubstr;

std::string Environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : ".";
}

std::string Data(const std::string& path) {
    return Environment("STOCKADE_SOURCE_DIR") + "/tests/data/dns/" + path;
}

struct Outcome {
    int exit_code = -1;
    std::string out, err;
};

Outcome MeterRun(const std::string& arguments) {
    const std::string base = testing::TempDir() + "dns-meter." + std::to_string(getpid());
    const std::string command = absl::StrCat(Environment("STOCKADE_BIN_DIR"), "/stockade dns meter ",
                                             arguments, " >", base, ".out 2>", base, ".err");
    const int status = std::system(command.c_str());
    Outcome outcome;
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    outcome.out = *ReadFile(base + ".out", 64 << 20);
    outcome.err = *ReadFile(base + ".err", 1 << 20);
    std::filesystem::remove(base + ".out");
    std::filesystem::remove(base + ".err");
    return outcome;
}

Struct Json(const Outcome& outcome) {
    Struct out;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(outcome.out, &out).ok())
        << outcome.out.substr(0, 200) << outcome.err;
    return out;
}

double Number(const Struct& object, const std::string& key) { return object.fields().at(key).number_value(); }
std::string Text(const Struct& object, const std::string& key) {
    return object.fields().at(key).string_value();
}

class TunnelTest : public testing::TestWithParam<std::string> {};

TEST_P(TunnelTest, IsCaughtWithAtMost256BytesOut) {
    for (const char* flags : {"", " --fast-forward 10m", " --fast-forward 1ms"}) {
        const Outcome outcome = MeterRun(absl::StrCat("-o json ", Data(GetParam()), flags));
        EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
        const Struct report = Json(outcome);
        const auto& pairs = report.fields().at("pairs").list_value().values();
        ASSERT_EQ(pairs.size(), 1);
        const Struct& pair = pairs[0].struct_value();
        EXPECT_EQ(Text(pair, "verdict"), "block") << flags;
        EXPECT_GT(Number(pair, "first_dropped"), 0);
        EXPECT_LE(Number(pair, "capacity_bytes"), 256) << flags;
        EXPECT_LE(Number(pair, "spent_bits"), 256 * 8) << flags;
    }
}

INSTANTIATE_TEST_SUITE_P(All, TunnelTest,
                         testing::Values("tunnel-captures/iodine-NULL.pcap",
                                         "tunnel-captures/iodine-TXT.pcap", "tunnel-captures/iodine-SRV.pcap",
                                         "tunnel-captures/iodine-MX.pcap",
                                         "tunnel-captures/iodine-CNAME.pcap", "tunnel-captures/iodine-A.pcap",
                                         "tunnel-captures/iodine-TXT-short64.pcap",
                                         "tunnel-captures/dns2tcp-TXT.pcap",
                                         "tunnel-captures/dns2tcp-KEY.pcap", "sunburst/uniq-hostnames.txt"),
                         [](const auto& info) { return std::to_string(info.index); });

TEST(Benign, AtMostOneInAThousandPairsIsBlocked) {
    // The site's own zones, as a policy names them.
    const Outcome outcome = MeterRun("-o json " + Data("benign/wrccdc-2018-zeek-dns.log.gz") +
                                     " --internal wrccdc.org --internal oompa.loompa");
    const Struct report = Json(outcome);
    const Struct& summary = report.fields().at("summary").struct_value();
    EXPECT_GT(Number(summary, "pairs"), 1500);
    EXPECT_LE(Number(summary, "pairs_blocked"), Number(summary, "pairs") / 1000);
    EXPECT_LE(Number(summary, "largest_state_bytes"), 16 * 1024);
    // Each one is explained in docs/dns.md.
    const std::string docs = *ReadFile(Environment("STOCKADE_SOURCE_DIR") + "/docs/dns.md", 1 << 20);
    for (const auto& value : report.fields().at("pairs").list_value().values()) {
        const Struct& pair = value.struct_value();
        if (Text(pair, "verdict") != "block") continue;
        EXPECT_THAT(docs, HasSubstr(Text(pair, "zone")));
    }
}

TEST(Meter, GivesTheSameBytesEachTime) {
    const std::string arguments = "-o json " + Data("benign/wrccdc-2018-zeek-dns.log.gz");
    EXPECT_EQ(MeterRun(arguments).out, MeterRun(arguments).out);
}

TEST(Meter, ReadsStandardInputAndBudgets) {
    const std::string file = Data("sunburst/uniq-hostnames.txt");
    EXPECT_EQ(MeterRun("- <" + file).out, MeterRun(file).out);
    EXPECT_EQ(MeterRun(file + " --budget zone=none,total=none").exit_code, 0);
    EXPECT_EQ(MeterRun(file + " --internal avsvmcloud.com").exit_code, 0);
    EXPECT_EQ(MeterRun(file + " --grant avsvmcloud.com=1MiB").exit_code, 0);
    EXPECT_EQ(MeterRun(file + " --budget zone=12q").exit_code, 2);
    EXPECT_EQ(MeterRun(file + " --fast-forward never").exit_code, 2);
}

TEST(Meter, AHostileFileIsAnErrorWithItsByte) {
    const std::string good = *ReadFile(Data("tunnel-captures/iodine-A.pcap"), 1 << 20);
    const std::string path = testing::TempDir() + "hostile." + std::to_string(getpid());
    const auto run = [&](const std::string& bytes) {
        std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
        return MeterRun(path);
    };
    const Outcome cut = run(good.substr(0, 1001));
    EXPECT_EQ(cut.exit_code, 2);
    EXPECT_THAT(cut.err, HasSubstr(": byte "));
    EXPECT_THAT(cut.err, HasSubstr("the input ends after"));
    std::string large = good;
    large[24 + 11] = '\x7f';
    EXPECT_THAT(run(large).err, HasSubstr("byte 24: a packet of "));
    EXPECT_THAT(run("").err, HasSubstr("byte 0: the input is empty"));
    EXPECT_THAT(run(std::string("\x0a\x0d\x0d\x0a\xff\xff\xff\xff", 8)).err, HasSubstr("byte "));
    EXPECT_THAT(run("#separator \\x09\nrow\n").err, HasSubstr("byte 16: a row before the line '#fields'"));
    EXPECT_THAT(run("\x7f"
                    "ELF")
                    .err,
                HasSubstr("byte 0: neither a capture"));
    std::filesystem::remove(path);
    EXPECT_EQ(MeterRun("/no/such/file").exit_code, 2);
}

TEST(Meter, WhatIsRefusedForItsFormIsNotNothing) {
    const std::string path = testing::TempDir() + "form." + std::to_string(getpid());
    const std::string label(60, 'a');
    std::ofstream(path) << "a.example.com\n"
                        << label << "." << label << "." << label << "." << label << "." << label
                        << ".example.com\n";
    const Outcome refused = MeterRun(path);
    EXPECT_EQ(refused.exit_code, 1) << refused.out;
    EXPECT_THAT(refused.out, HasSubstr("0 blocked, 0 warned; 1 queries refused for their form"));
    std::ofstream(path, std::ios::trunc) << "a.example.com\n";
    EXPECT_EQ(MeterRun(path).exit_code, 0);
    std::filesystem::remove(path);
}

TEST(Meter, AZoneWithoutARecordOfItsOwnSaysSo) {
    const std::string path = testing::TempDir() + "zones." + std::to_string(getpid());
    std::ofstream out(path);
    for (int i = 0; i < 240; ++i) out << "www.zone" << i << ".com\n";
    out.close();
    const Outcome text = MeterRun(path + " --all --budget zone=none");
    const std::string said = "counted in the budget that all further zones share";
    const auto line = [&](const std::string& zone) {
        const size_t at = text.out.find(" " + zone + " ");
        return at == std::string::npos ? zone + " is not there"
                                       : text.out.substr(at, text.out.find('\n', at) - at);
    };
    EXPECT_THAT(line("zone0.com"), testing::Not(HasSubstr(said)));
    EXPECT_THAT(line("zone0.com"), HasSubstr("unranked"));
    EXPECT_THAT(line("zone239.com"), HasSubstr(said));
    const Struct report = Json(MeterRun("-o json --budget zone=none " + path));
    EXPECT_EQ(Number(report.fields().at("summary").struct_value(), "pairs_in_shared_budget"), 240 - 230);
    std::filesystem::remove(path);
}

TEST(Meter, WrongWordsAndFilesAreNamed) {
    const std::string file = Data("sunburst/uniq-hostnames.txt");
    EXPECT_THAT(MeterRun(file + " --budget zone").err,
                HasSubstr("--budget: 'zone' has no amount: a budget is zone=256B"));
    EXPECT_THAT(MeterRun(file + " --grant example.com").err,
                HasSubstr("--grant takes ZONE=BYTES, not example.com"));
    const Outcome directory = MeterRun(Data(""));
    EXPECT_EQ(directory.exit_code, 2);
    EXPECT_THAT(directory.err, HasSubstr("is a directory"));
    const std::string path = testing::TempDir() + "names." + std::to_string(getpid());
    std::ofstream(path) << "# mine\na.example.com\nnot a name\n";
    const Outcome bad = MeterRun(path);
    EXPECT_EQ(bad.exit_code, 2);
    EXPECT_THAT(bad.err, HasSubstr("line 3 is no host name"));
    std::filesystem::remove(path);
}

}  // namespace
}  // namespace stockade
