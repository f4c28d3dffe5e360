#include "userspace/dns/code_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "bpf/wire/dns_budget.h"
#include "userspace/base/sha256.h"
#include "userspace/dns/embedded.h"

namespace stockade::dns {
namespace {

using testing::HasSubstr;

constexpr absl::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789-_";

const CodeModel& Shipped() {
    static const CodeModel* const model = new CodeModel(*CodeModel::Parse(EmbeddedModel()));
    return *model;
}

double Bits(absl::string_view label) { return Shipped().Label(label) / double{SK_DNS_BIT}; }

TEST(CodeModel, WordsOfHostsAreCheapAndRandomOnesAreNot) {
    EXPECT_LT(Bits("www"), 8);
    EXPECT_LT(Bits("api"), 12);
    EXPECT_LT(Bits("us-east-1"), 14);
    EXPECT_LT(Bits("download"), 16);
    // 16 characters of base32 hold 80 bits.
    EXPECT_GT(Bits("mrtdm2ka7qxj4zpe"), 80);
    EXPECT_GT(Bits("d41d8cd98f00b204e9800998ecf8427e"), 128);
    EXPECT_GT(Bits("0123456789"), 33);
}

TEST(CodeModel, WhatNoLabelIsHasNoCode) {
    EXPECT_EQ(Shipped().Label(""), CodeModel::kUncodable);
    EXPECT_EQ(Shipped().Label("a.b"), CodeModel::kUncodable);
    EXPECT_EQ(Shipped().Label("A"), CodeModel::kUncodable);
    EXPECT_EQ(Shipped().Label(std::string(64, 'a')), CodeModel::kUncodable);
    EXPECT_EQ(Shipped().Name("a..b"), CodeModel::kUncodable);
    EXPECT_LT(Shipped().Label(std::string(63, '_')), CodeModel::kUncodable);
}

TEST(CodeModel, NamesAddUpTheirLabels) {
    EXPECT_EQ(Shipped().Name(""), SK_DNS_BIT);
    EXPECT_EQ(Shipped().Name("www"), Shipped().Label("www") + 2 * SK_DNS_BIT);
    EXPECT_EQ(Shipped().Name("a.b"), Shipped().Label("a") + Shipped().Label("b") + 3 * SK_DNS_BIT);
}

// The costs of all labels are a code (Kraft): no set of labels is cheaper than the bits it can tell.
// All labels of up to three letters, one by one; the words of the dictionary are in the sum of what
// each letter leads to, which is checked for every row.
TEST(CodeModel, TheCostsAreThoseOfACode) {
    double sum = 0;
    const auto add = [&](const std::string& label) { sum += std::exp2(-Bits(label)); };
    for (const char a : kLetters) {
        add({a});
        for (const char b : kLetters) {
            add({a, b});
            for (const char c : kLetters) add({a, b, c});
        }
    }
    EXPECT_LE(sum, 1.0);
    EXPECT_GT(sum, 0.1);
    double words = 0;
    std::vector<double> rows;
    for (absl::string_view line : absl::StrSplit(EmbeddedModel(), '\n')) {
        const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
        if (fields[0] == "word") words += std::exp2(-std::stoi(std::string(fields[2])) / 16.0);
        if (fields[0] != "after") continue;
        double row = 0;
        for (size_t i = 2; i < fields.size(); ++i)
            row += std::exp2(-std::stoi(std::string(fields[i])) / 16.0);
        EXPECT_LE(row, 1.0) << fields[1];
        rows.push_back(row);
    }
    EXPECT_EQ(rows.size(), 39u);
    EXPECT_LE(words, 1.0);
}

// A text with its digest made right again.
std::string Resigned(const std::string& text) {
    const std::string body = text.substr(0, text.rfind("\nend ") + 1);
    return absl::StrCat(body, "end ", Sha256Hex(body), "\n");
}

std::string ErrorOf(const std::string& text) {
    return std::string(CodeModel::Parse(text).status().message());
}

TEST(CodeModel, ACorruptModelIsRefusedWithItsReason) {
    const std::string good(EmbeddedModel());
    EXPECT_EQ(ErrorOf(good), "");
    EXPECT_THAT(ErrorOf(""), HasSubstr("no end line"));
    EXPECT_THAT(ErrorOf(good.substr(0, good.size() / 2)), HasSubstr("no end line"));
    std::string flipped = good;
    flipped[1000] ^= 1;
    EXPECT_THAT(ErrorOf(flipped), HasSubstr("not those of its digest"));
    const auto changed = [&](absl::string_view from, absl::string_view to) {
        return ErrorOf(Resigned(absl::StrReplaceAll(good, {{from, to}})));
    };
    EXPECT_THAT(changed("stockade-dns-model 1\n", "stockade-dns-model 2\n"), HasSubstr("version 2"));
    EXPECT_THAT(changed("letters abc", "letters bac"), HasSubstr("another alphabet"));
    EXPECT_THAT(changed("word www ", "word WWW "), HasSubstr("bad line"));
    EXPECT_THAT(changed("word www ", "word aaa "), HasSubstr("out of order"));
    EXPECT_THAT(changed("after b ", "after a "), HasSubstr("twice"));
    EXPECT_THAT(changed("after b ", "before b "), HasSubstr("unknown line"));
    EXPECT_THAT(changed("word www ", "word www -"), HasSubstr("bad line"));
}

}  // namespace
}  // namespace stockade::dns
