#include "userspace/decode/redact.h"

#include <gtest/gtest.h>

namespace stockade::decode {
namespace {

using Argv = std::vector<std::string>;

TEST(Redact, SecretsGo) {
    const struct {
        Argv argv;
        Argv want;
    } rows[] = {
        {{"x", "--password", "hunter2"}, {"x", "--password", "[redacted]"}},
        {{"x", "--db-password", "hunter2"}, {"x", "--db-password", "[redacted]"}},
        {{"x", "--password=hunter2"}, {"x", "--password=[redacted]"}},
        {{"x", "--API-KEY=abc"}, {"x", "--API-KEY=[redacted]"}},
        {{"x", "--token", "a b\nc"}, {"x", "--token", "[redacted]"}},
        {{"env", "AWS_SECRET_ACCESS_KEY=abc/def", "x"}, {"env", "AWS_SECRET_ACCESS_KEY=[redacted]", "x"}},
        {{"sh", "-c", "GITHUB_TOKEN=abc make"}, {"sh", "-c", "GITHUB_TOKEN=[redacted] make"}},
        {{"x", "AKIAIOSFODNN7EXAMPLE"}, {"x", "[redacted]"}},
        {{"x", "AKIAIOSFODNN"}, {"x", "[redacted]"}},  // cut
        {{"x", "ghp_0123456789abcdef0123456789abcdef0123"}, {"x", "[redacted]"}},
        {{"curl", "-H", "Authorization: Bearer abc.def"}, {"curl", "-H", "Authorization: Bearer [redacted]"}},
        {{"curl", "-H", "Authorization: Basic dTpw"}, {"curl", "-H", "Authorization: Basic [redacted]"}},
        {{"git", "https://u:pw@host/x"}, {"git", "https://u:[redacted]@host/x"}},
        {{"x", "eyJhbGciOiJI.eyJzdWIi.SflKxw"}, {"x", "[redacted]"}},
        {{"x", "-----BEGIN RSA PRIVATE KEY-----\nMII"}, {"x", "[redacted]"}},
        {{"x", "\xff--", "--secret", "\xfe"}, {"x", "\xff--", "--secret", "[redacted]"}},
    };
    for (const auto& row : rows) {
        Argv argv = row.argv;
        EXPECT_EQ(RedactArgv(&argv), 1) << row.argv.back();
        EXPECT_EQ(argv, row.want);
    }
}

TEST(Redact, TheRestStays) {
    for (const Argv& argv : std::vector<Argv>{
             {}, {"python3", "-c", "print(40+2)"}, {"x", "--password", "--verbose"},
             {"git", "clone", "https://host/x.git"}, {"token", "x"}, {"ls", "/tokens/secret.txt"},
             {"x", "--tokenizer=bert"}, {"make", "-j2", "CFLAGS=-O2"}, {"x", "--password"}}) {
        Argv after = argv;
        EXPECT_EQ(RedactArgv(&after), 0);
        EXPECT_EQ(after, argv);
    }
}

}  // namespace
}  // namespace stockade::decode
