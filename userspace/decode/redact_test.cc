#include "userspace/decode/redact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "userspace/decode/redact_secrets.h"
#include "userspace/model/json.h"
#include "userspace/model/text.h"

namespace stockade::decode {
namespace {

using testing::HasSubstr;
using Argv = std::vector<std::string>;

v1::Event WithArgv(const Argv& argv) {
    v1::Event event;
    for (const std::string& argument : argv) event.mutable_exec()->add_argv(argument);
    return event;
}

Argv ArgvOf(const v1::Event& event) { return {event.exec().argv().begin(), event.exec().argv().end()}; }

std::set<std::string> Patterns(const v1::Event& event) {
    std::set<std::string> names;
    for (const auto& row : event.redactions()) names.insert(row.pattern());
    return names;
}

TEST(Redact, ArgumentsAreReplaced) {
    const struct {
        Argv argv;
        Argv want;
    } rows[] = {
        {{"x", "--password", "hunter2"}, {"x", "--password", "[redacted]"}},
        {{"x", "--db-password", "hunter2"}, {"x", "--db-password", "[redacted]"}},
        {{"x", "--password=hunter2"}, {"x", "--password=[redacted]"}},
        {{"x", "--API-KEY=abc"}, {"x", "--API-KEY=[redacted]"}},
        {{"x", "--token", "a b\\x0ac"}, {"x", "--token", "[redacted]"}},
        {{"/usr/bin/curl", "-u", "me:hunter2"}, {"/usr/bin/curl", "-u", "me:[redacted]"}},
        {{"sshpass", "-p", "hunter2"}, {"sshpass", "-p", "[redacted]"}},
        {{"env", "AWS_SECRET_ACCESS_KEY=abc/def", "x"}, {"env", "AWS_SECRET_ACCESS_KEY=[redacted]", "x"}},
        {{"sh", "-c", "GITHUB_TOKEN=abc make"}, {"sh", "-c", "GITHUB_TOKEN=[redacted] make"}},
        {{"sh", "-c", "A_TOKEN='a b' make"}, {"sh", "-c", "A_TOKEN=[redacted] make"}},
        {{"x", "AKIAIOSFODNN7EXAMPLE"}, {"x", "[redacted]"}},
        {{"x", "AKIAIOSFODNN"}, {"x", "[redacted]"}},                    // cut
        {{"x", "\\x0aAKIAIOSFODNN7EXAMPLE"}, {"x", "\\x0a[redacted]"}},  // after an escaped byte
        {{"curl", "-H", "Authorization: Bearer abc.def"}, {"curl", "-H", "Authorization: Bearer [redacted]"}},
        {{"git", "https://u:pw@host/x"}, {"git", "https://u:[redacted]@host/x"}},
        {{"x", "eyJhbGciOiJI.eyJzdWIi.SflKxw"}, {"x", "[redacted]"}},
        {{"x", "-----BEGIN RSA PRIVATE KEY-----\\x0aMII"}, {"x", "[redacted]"}},
        {{"x", "\\xff--", "--secret", "\\xfe"}, {"x", "\\xff--", "--secret", "[redacted]"}},
    };
    for (const auto& row : rows) {
        v1::Event event = WithArgv(row.argv);
        EXPECT_EQ(Redactor::Default().Redact(&event), 1) << row.argv.back();
        EXPECT_EQ(ArgvOf(event), row.want);
        EXPECT_EQ(event.exec().argv_redacted(), 1u) << row.argv.back();
        ASSERT_GE(event.redactions_size(), 1) << row.argv.back();
        // What is redacted stays as it is and is not counted again.
        const v1::Event once = event;
        EXPECT_EQ(Redactor::Default().Redact(&event), 0) << row.argv.back();
        EXPECT_EQ(event.SerializeAsString(), once.SerializeAsString());
    }
}

// What an agent's tools have on their command lines all day.
const char* const kInnocent[] = {
    "",
    "python3",
    "-c",
    "print(40+2)",
    "--verbose",
    "https://host/x.git",
    "token",
    "/tokens/secret.txt",
    "--tokenizer=bert",
    "-j2",
    "CFLAGS=-O2",
    "--password",
    "PWD=/work/src",
    "OLDPWD=/",
    "max_tokens=100",
    "d670460b4b4aece5915caf5c68d12f560a9fe3e4",                          // a commit
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",  // a checksum
    "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
    "550e8400-e29b-41d4-a716-446655440000",
    "sbx_01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "/usr/lib/python3/dist-packages/pip/_vendor/certifi/cacert.pem",
    "/proc/self/fd/3",
    "/etc/ssl/private",
    "npm_config_cache",
    "npm_lifecycle_event",
    "node_modules/.cache/sk-learn-helpers-for-node/index.js",
    "asia-northeast1-docker.pkg.dev",
    "risk-management-framework",
    "pypi-mirror-configuration",
    "hf_hub",
    "user@host:/path",
    "ssh://git@github.com/a/b.git",
    "postgres://readonly_account_of_reports@db/app",
    "http://[::1]:8080/",
    "http://user@host:8080/",
    "git@github.com:a/b.git",
    "1.2.3.4:443",
    "2026-11-30T06:39:27.000000001Z",
    "-----BEGIN CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
    "eyjafjallajokull.is",
    "eyeglasses.shop",
    "key-value-store",
    "monkey=banana",
    "keyboard=us",
    "compass=north",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "com.docker.compose.project=app",
    "traceparent",
    "libsecret-1.so.0",
    "passwd",
    "/etc/passwd",
    "bearer",
    "basic-auth",
};

TEST(Redact, InnocentTextStays) {
    for (const char* text : kInnocent) {
        v1::Event event = WithArgv({"x", text});
        event.mutable_file()->set_path(absl::StrCat("/work/", text));
        event.mutable_exec()->add_argv(text);
        const v1::Event before = event;
        EXPECT_EQ(Redactor::Default().Redact(&event), 0) << text;
        EXPECT_EQ(event.SerializeAsString(), before.SerializeAsString()) << text;
    }
    v1::Event event = WithArgv({"x", "--password", "--verbose"});
    EXPECT_EQ(Redactor::Default().Redact(&event), 0);
}

// Every string of a sandbox that an event of this kind can have, with `text` in it.
void Plant(google::protobuf::Message* message, const std::string& text, int* planted) {
    const auto& r = *message->GetReflection();
    for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
        const auto* field = message->GetDescriptor()->field(i);
        if (field->real_containing_oneof() &&
            r.GetOneofFieldDescriptor(*message, field->containing_oneof()) != field)
            continue;
        if (field->is_map() ||
            (field->message_type() && field->message_type()->full_name() == "google.protobuf.Timestamp"))
            continue;
        if (field->message_type()) {
            Plant(field->is_repeated() ? r.AddMessage(message, field) : r.MutableMessage(message, field),
                  text, planted);
        } else if (field->options().GetExtension(v1::field).secrecy() != v1::PLAIN) {
            ++*planted;
            if (field->is_repeated())
                r.AddString(message, field, "x"), r.AddString(message, field, text);
            else
                r.SetString(message, field, text);
        }
    }
}

std::vector<v1::Event> EveryKind() {
    std::vector<v1::Event> events;
    const auto* payload = v1::Event::descriptor()->FindOneofByName("payload");
    for (int i = 0; i < payload->field_count(); ++i) {
        v1::Event event;
        event.GetReflection()->MutableMessage(&event, payload->field(i));
        event.set_kind(payload->field(i)->name());
        events.push_back(std::move(event));
    }
    return events;
}

void ExpectGone(const v1::Event& event, const std::string& secret, const std::string& where) {
    const std::string json = model::ToJsonLine(event);
    EXPECT_FALSE(absl::StrContains(event.SerializeAsString(), secret)) << where << json;
    EXPECT_FALSE(absl::StrContains(json, secret)) << where << json;
}

TEST(Redact, NoPlantedSecretIsLeftInAnyField) {
    std::set<std::string> kinds;
    for (const PlantedSecret& planted : PlantedSecrets()) {
        kinds.insert(planted.pattern);
        // Alone, behind text, in a path, as a value, and after a byte that had to be escaped.
        for (const std::string form :
             {"%", "run it with % please", "/out/%/x", "note=%", "\\x0a%\\x0a", "\"%\""}) {
            const std::string text = absl::StrReplaceAll(form, {{"%", planted.text}});
            if (planted.pattern == "option" && form != "%") continue;  // is one argument, or a variable
            for (v1::Event event : EveryKind()) {
                int count = 0;
                Plant(&event, text, &count);
                ASSERT_GT(count, 5) << event.kind();
                EXPECT_GE(Redactor::Default().Redact(&event), count) << event.kind() << ": " << text;
                ExpectGone(event, planted.secret, event.kind() + ": ");
                EXPECT_THAT(Patterns(event),
                            testing::Contains(form == "%" ? planted.pattern : event.redactions(0).pattern()))
                    << text;
            }
        }
    }
    EXPECT_GE(kinds.size(), 30u);
}

// As labels of a name that is asked for, which decode writes in lower case.
TEST(Redact, NoTokenIsLeftInANameAskedFor) {
    int asked = 0;
    for (const PlantedSecret& planted : PlantedSecrets()) {
        if (planted.text != planted.secret) continue;  // has characters that no name carries
        for (const std::string form : {"%.evil.example", "a.%.evil.example", "x-%.evil.example"}) {
            const std::string secret = absl::AsciiStrToLower(planted.secret);
            const std::string name = absl::StrReplaceAll(form, {{"%", secret}});
            v1::Event event;
            event.mutable_dns()->set_name(name);
            event.set_reason(absl::StrCat("the policy does not allow the name: ", name));
            EXPECT_EQ(Redactor::Default().Redact(&event), 2) << name;
            ExpectGone(event, secret, "");
            EXPECT_TRUE(absl::EndsWith(event.dns().name(), "evil.example") || planted.pattern == "jwt" ||
                        planted.pattern == "sendgrid-key")
                << event.dns().name();
            ++asked;
        }
    }
    EXPECT_GT(asked, 60);
}

TEST(Redact, ConfiguredPatternsAreChecked) {
    const auto fails = [](Redactor::Options options, const std::string& why) {
        EXPECT_THAT(std::string(Redactor::Create(options).status().message()), HasSubstr(why));
    };
    fails({.more = {{"mine", "a("}}}, "\"mine\": missing )");
    fails({.more = {{"mine", "a*"}}}, "\"mine\": it matches the empty text");
    fails({.more = {{"", "a"}}}, "no name");
    fails({.more = {{"mine", "((a{100}){100}){100}"}}}, "\"mine\": ");
    fails({.without = {"jtw"}}, "no redaction pattern \"jtw\"");
    fails({.more = std::vector<RedactPattern>(Redactor::kMaxPatterns + 1, {"n", "x"})}, "more than 256");

    auto redactor =
        Redactor::Create({.without = {"jwt", "argument"}, .more = {{"ticket", "TCK-(?P<secret>[0-9]+)-x"}}});
    ASSERT_TRUE(redactor.ok()) << redactor.status();
    v1::Event event = WithArgv({"x", "TCK-123-x TCK-4-x", "eyJhbGciOiJI.eyJzdWIi.SflKxw", "--token", "a"});
    EXPECT_EQ((*redactor)->Redact(&event), 1);
    EXPECT_EQ(ArgvOf(event)[1], "TCK-[redacted]-x TCK-[redacted]-x");
    ASSERT_EQ(event.redactions_size(), 1);
    EXPECT_EQ(event.redactions(0).pattern(), "ticket");
    EXPECT_EQ(event.redactions(0).count(), 2u);
    EXPECT_EQ((*redactor)->counts().at("ticket"), 2u);

    auto nothing = Redactor::Create({.defaults = false});
    ASSERT_TRUE(nothing.ok()) << nothing.status();
    event = WithArgv({"x", "--password", "hunter2", "AKIAIOSFODNN7EXAMPLE"});
    EXPECT_EQ((*nothing)->Redact(&event), 0);
}

// Time is linear in the bytes: what was a second for twice the bytes would be four for four times.
TEST(Redact, HostileBytesTakeBoundedTime) {
    const std::string seeds[] = {"a://",  "a://a:",  "eyJ.",   "password=",   "password='", "AKIA",
                                 "xoxb-", "bearer ", "key=\"", "-----BEGIN ", "0",          ":AA",
                                 "://:@", "\\x0a",   "a_",     "a-"};
    for (const std::string& seed : seeds) {
        std::string text;
        while (text.size() < 256 << 10) text += seed;
        v1::Event event;
        event.mutable_file()->set_path(text);
        const auto start = std::chrono::steady_clock::now();
        (void)Redactor::Default().Redact(&event);
        // Some milliseconds by a linear search; minutes by one that backtracks or starts anew at each byte.
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << seed;
    }
    std::mt19937 random(7);
    for (int i = 0; i < 2000; ++i) {
        std::string raw(random() % 200, 0);
        for (char& c : raw) c = static_cast<char>(random());
        std::string text;
        (void)model::AppendEscaped(raw, &text);
        v1::Event event = WithArgv({"x", text});
        (void)Redactor::Default().Redact(&event);
        ASSERT_TRUE(model::IsPrintable(event.exec().argv(1)));
    }
}

// An automaton that is short of memory, which noise fills with states, must not let anything by.
TEST(Redact, ShortOfMemoryItFindsTheSame) {
    auto redactor = Redactor::Create({.set_memory = 300 << 10});
    ASSERT_TRUE(redactor.ok()) << redactor.status();
    std::mt19937 random(3);
    for (int i = 0; i < 200; ++i) {
        std::string noise(3000, 0);
        for (char& c : noise) c = "abehklmnopqrstxyz_-=:/.0123456789ABGKS\\ "[random() % 41];
        v1::Event event = WithArgv({"x", noise + " AKIAIOSFODNN7EXAMPLE " + noise});
        EXPECT_GE((*redactor)->Redact(&event), 1);
        ExpectGone(event, "AKIAIOSFODNN7EXAMPLE", "");
    }
}

}  // namespace
}  // namespace stockade::decode
