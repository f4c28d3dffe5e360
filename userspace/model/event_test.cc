// event.proto says all that it must say about each kind and each field.
#include <google/protobuf/timestamp.pb.h>
#include <gtest/gtest.h>

#include <set>

#include "bpf/wire/kinds.h"
#include "userspace/model/event.pb.h"
#include "userspace/model/lifecycle.h"
#include "userspace/model/names.h"
#include "userspace/model/options.pb.h"

namespace stockade::model {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

void Collect(const Descriptor* type, std::set<const Descriptor*>* out) {
    if (type == google::protobuf::Timestamp::descriptor()) return;
    if (type->options().map_entry() || !out->insert(type).second) return;
    for (int i = 0; i < type->field_count(); ++i) {
        if (type->field(i)->message_type()) Collect(type->field(i)->message_type(), out);
    }
}

std::set<const Descriptor*> Types() {
    std::set<const Descriptor*> types;
    Collect(v1::Event::descriptor(), &types);
    return types;
}

bool IsNumber(const FieldDescriptor& field) {
    switch (field.cpp_type()) {
        case FieldDescriptor::CPPTYPE_STRING:
        case FieldDescriptor::CPPTYPE_MESSAGE:
        case FieldDescriptor::CPPTYPE_BOOL:
        case FieldDescriptor::CPPTYPE_ENUM: return false;
        default: return true;
    }
}

TEST(EventProto, EveryWireKindHasAMessage) {
    const auto* payload = v1::Event::descriptor()->FindOneofByName("payload");
    ASSERT_NE(payload, nullptr);
    for (const Name& kind : WireKinds()) {
        const auto* field = v1::Event::descriptor()->FindFieldByName(std::string(kind.text));
        ASSERT_NE(field, nullptr) << kind.text;
        EXPECT_EQ(field->containing_oneof(), payload) << kind.text;
    }
}

TEST(EventProto, EveryFieldHasItsOptions) {
    for (const Descriptor* type : Types()) {
        for (int i = 0; i < type->field_count(); ++i) {
            const FieldDescriptor& field = *type->field(i);
            ASSERT_TRUE(field.options().HasExtension(v1::field)) << field.full_name();
            const v1::FieldInfo& info = field.options().GetExtension(v1::field);
            EXPECT_FALSE(info.doc().empty()) << field.full_name();
            EXPECT_FALSE(info.sigma().empty()) << field.full_name();
            EXPECT_FALSE(info.ocsf().empty()) << field.full_name();
            EXPECT_NE(info.secrecy(), v1::SECRECY_UNSPECIFIED) << field.full_name();
            EXPECT_EQ(IsNumber(field), !info.unit().empty()) << field.full_name();
        }
    }
}

TEST(EventProto, SandboxBytesStandOnlyInStrings) {
    for (const Descriptor* type : Types()) {
        for (int i = 0; i < type->field_count(); ++i) {
            const FieldDescriptor& field = *type->field(i);
            if (field.options().GetExtension(v1::field).secrecy() == v1::PLAIN) continue;
            EXPECT_EQ(field.type(), FieldDescriptor::TYPE_STRING) << field.full_name();
        }
    }
}

TEST(EventProto, FixedWordsNameATable) {
    for (const Descriptor* type : Types()) {
        for (int i = 0; i < type->field_count(); ++i) {
            const v1::FieldInfo& info = type->field(i)->options().GetExtension(v1::field);
            if (info.values().empty() || info.values() == "kind") continue;
            EXPECT_FALSE(TableNamed(info.values()).empty()) << type->field(i)->full_name();
        }
    }
}

TEST(Names, TablesAreTheWiresOwn) {
#define X(number, NAME, text)                                       \
    EXPECT_EQ(NameOf(Verdicts(), SK_VERDICT_##NAME), text);
    SK_VERDICTS(X)
#undef X
#define X(number, NAME, text) EXPECT_EQ(NameOf(Outcomes(), SK_OUTCOME_##NAME), text);
    SK_OUTCOMES(X)
#undef X
#define X(number, NAME, text) EXPECT_EQ(NameOf(Locks(), SK_LOCK_##NAME), text);
    SK_LOCKS(X)
#undef X
#define X(number, NAME, text, sentence) EXPECT_EQ(NameOf(Codes(), SK_CODE_##NAME), text);
    SK_CODES(X)
#undef X
}

TEST(Names, WordsAndNumbersAreUniqueAndAscending) {
    for (const char* name : {"verdict", "outcome", "lock", "code", "section", "backend", "exec_role",
                             "file_op", "net_op", "escape_op", "lifecycle_op", "severity",
                             "coverage"}) {
        std::set<absl::string_view> words;
        int64_t before = -1;
        for (const Name& row : TableNamed(name)) {
            EXPECT_TRUE(words.insert(row.text).second) << name << " " << row.text;
            EXPECT_GT(int64_t{row.number}, before) << name << " " << row.text;
            EXPECT_EQ(NumberOf(TableNamed(name), row.text), row.number);
            before = row.number;
        }
        EXPECT_FALSE(words.empty()) << name;
    }
    EXPECT_EQ(NameOf(Verdicts(), 5), "");
    EXPECT_EQ(NameOf(Codes(), 5), "");
    EXPECT_EQ(NameOf(Codes(), 0xffffffff), "");
    EXPECT_EQ(NumberOf(Verdicts(), "no"), -1);
    EXPECT_EQ(NameOf(LifecycleOps(), LIFECYCLE_DESTROYED), "destroyed");
}

}  // namespace
}  // namespace stockade::model
