// The bytes that a chain gives out, against protobuf's own serialiser.
#include "userspace/pipeline/export_chain.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/sha256.h"
#include "userspace/model/event_testing.h"

namespace stockade::pipeline {
namespace {

std::string Deterministic(const v1::Event& event) {
    std::string out;
    google::protobuf::io::StringOutputStream stream(&out);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    EXPECT_TRUE(event.SerializeToCodedStream(&coded));
    coded.Trim();
    return out;
}

// By sandbox: number and chain, kept here as export_chain.h says them.
struct Books {
    uint64_t seq = 0;
    std::string chain;
};

TEST(ExportChain, BytesAreThoseOfTheSerialiserWithNumberAndChain) {
    ExportChain chain("n1", nullptr);
    std::map<std::string, Books> all;
    size_t labels = 0;
    for (uint32_t seed = 0; seed < 2000; ++seed) {
        v1::Event event;
        model::Filler(seed).Fill(&event);
        if (event.has_seal()) continue;
        // Few, so that each has many events.
        if (event.has_sandbox()) event.mutable_sandbox()->set_id(absl::StrCat("sbx", seed % 3));
        labels += event.sandbox().labels_size() > 1;
        const std::string before = event.SerializeAsString();
        const auto bytes = chain.Add(event);
        ASSERT_TRUE(bytes.ok()) << bytes.status();
        EXPECT_EQ(event.SerializeAsString().size(), before.size()) << "the event is others' too";

        Books& books = all[event.sandbox().id()];
        v1::Event plain = event;
        plain.clear_chain();
        plain.set_export_seq(++books.seq);
        const std::string expected = Deterministic(plain);
        ASSERT_EQ(ChainAfter(books.chain, plain), Sha256Hex(books.chain + expected));
        books.chain = Sha256Hex(books.chain + expected);
        v1::Event end;
        end.set_chain(books.chain);
        ASSERT_EQ(*bytes, expected + end.SerializeAsString()) << seed;
        EXPECT_EQ(chain.HeadOf(event.sandbox().id()).chain, books.chain);
    }
    EXPECT_GT(labels, 100u) << "events whose serialisation has more than one order";
}

// What was serialised elsewhere gets the same numbers, chains and books.
TEST(ExportChain, BytesGiveWhatTheEventGives) {
    ExportChain by_event("n1", nullptr), by_bytes("n1", nullptr);
    for (uint32_t seed = 0; seed < 500; ++seed) {
        v1::Event event;
        model::Filler filler(seed);
        filler.Fill(&event);
        event.mutable_file()->set_op("open-read");
        event.clear_export_seq();
        event.clear_chain();
        event.set_kernel_seq(seed + 1);
        event.mutable_sandbox()->set_id(absl::StrCat("sbx", seed % 3));
        std::string bytes;
        AppendCanonical(event, &bytes);
        const auto looked_at = model::EventBytes::Of(bytes);
        ASSERT_TRUE(looked_at);
        const auto expected = by_event.Add(event), got = by_bytes.Add(*looked_at);
        ASSERT_TRUE(expected.ok() && got.ok());
        ASSERT_EQ(*got, *expected) << seed;
        EXPECT_TRUE(by_bytes.Has(event));
    }
    for (const char* sandbox : {"sbx0", "sbx1", "sbx2"}) {
        const ChainBooks got = by_bytes.HeadOf(sandbox).books, expected = by_event.HeadOf(sandbox).books;
        EXPECT_EQ(got.seen.ToText(), expected.seen.ToText());
        EXPECT_EQ(got.kinds, expected.kinds);
        EXPECT_EQ(got.sandbox.ShortDebugString(), expected.sandbox.ShortDebugString());
    }
    // After a seal neither is taken.
    v1::Sandbox sandbox;
    sandbox.set_id("sbx0");
    const v1::Event seal = by_bytes.Seal(sandbox);
    ASSERT_TRUE(by_bytes.Add(seal).ok());
    v1::Event late;
    late.mutable_sandbox()->set_id("sbx0");
    late.mutable_file();
    const std::string bytes = late.SerializeAsString();
    EXPECT_TRUE(absl::IsFailedPrecondition(by_bytes.Add(*model::EventBytes::Of(bytes)).status()));
    EXPECT_EQ(by_bytes.after_seal(), 1u);
}

// They come from the serialised form: what changes there must be seen.
TEST(ExportChain, TheBooksHaveTheLatestSandbox) {
    ExportChain chain("n1", nullptr);
    v1::Event event;
    event.mutable_sandbox()->set_id("sbx");
    event.set_kernel_seq(1);
    ASSERT_TRUE(chain.Add(event).ok());
    EXPECT_EQ(chain.HeadOf("sbx").books.sandbox.session(), "");
    event.mutable_sandbox()->set_session("s-1");
    event.set_kernel_seq(2);
    ASSERT_TRUE(chain.Add(event).ok());
    EXPECT_EQ(chain.HeadOf("sbx").books.sandbox.session(), "s-1");
    event.mutable_sandbox()->set_session("s-2");
    event.set_kernel_seq(3);
    ASSERT_TRUE(chain.Add(event).ok());
    EXPECT_EQ(chain.HeadOf("sbx").books.sandbox.session(), "s-2");
    v1::Event lost;
    lost.mutable_sandbox()->set_id("sbx");
    lost.mutable_lost()->set_count(1);
    ASSERT_TRUE(chain.Add(lost).ok());
    EXPECT_EQ(chain.HeadOf("sbx").books.sandbox.session(), "s-2")
        << "what tells of a loss knows the id alone";
}

}  // namespace
}  // namespace stockade::pipeline
