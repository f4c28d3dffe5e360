// What is printed from event.proto: docs/event-fields.md, and the index template of OpenSearch and Elasticsearch.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "userspace/model/event.pb.h"

namespace stockade::model {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr char kHead[] =
    R"(<!-- Printed from userspace/model/event.proto; a test compares. To write it anew:
     STOCKADE_UPDATE_GOLDEN=1 build/dev/bin/tests/model_event_fields_test -->
# Fields of an event

An event is one JSON object: the proto mapping, names as here, absent where empty or 0. Exactly one of the payloads is there, and `kind`
names it. *Secrets*: what the sandbox chose and may hold some, so that it is searched for them; *sandbox's bytes*: what it chose, escaped
and bounded. OCSF paths are those of 1.8.0; `docs/events.md` has the class of each kind.
)";

// In a cell of a table.
std::string Cell(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}, {"<", "&lt;"}}); }

std::string TypeOf(const FieldDescriptor* field) {
    if (field->is_map()) return "map of string";
    const std::string type = field->message_type() != nullptr ? std::string(field->message_type()->name())
                                                              : std::string(field->type_name());
    return field->is_repeated() ? absl::StrCat("list of ", type) : type;
}

const char* SecrecyOf(v1::Secrecy secrecy) {
    if (secrecy == v1::SECRET_BEARING) return "secrets";
    return secrecy == v1::SANDBOX_BYTES ? "sandbox's bytes" : "";
}

void AppendMessage(const Descriptor* message, std::set<std::string>* seen, std::string* out) {
    if (!seen->insert(std::string(message->full_name())).second) return;
    absl::StrAppend(out, "\n## ", message->name(),
                    "\n\n| field | type | what | unit | Sigma | OCSF | holds |\n",
                    "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < message->field_count(); ++i) {
        const FieldDescriptor* field = message->field(i);
        const v1::FieldInfo& info = field->options().GetExtension(v1::field);
        absl::StrAppend(out, "| `", field->name(), "` | ", TypeOf(field), " | ", Cell(info.doc()), " | ",
                        info.unit(), " | ", Cell(info.sigma()), " | ", Cell(info.ocsf()), " | ",
                        SecrecyOf(info.secrecy()), " |\n");
    }
    for (int i = 0; i < message->field_count(); ++i) {
        const Descriptor* inner = message->field(i)->message_type();
        if (inner != nullptr && inner->file() == message->file() && !message->field(i)->is_map())
            AppendMessage(inner, seen, out);
    }
}

std::string FieldsMarkdown() {
    std::string text = kHead;
    std::set<std::string> seen;
    AppendMessage(v1::Event::descriptor(), &seen, &text);
    return text;
}

// Keywords beyond that are stored and not searched: Lucene takes 32,766 bytes of one, and a character may have four.
constexpr int kMaxKeyword = 8191;

std::string IndexTypeOf(const FieldDescriptor* field) {
    switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_BOOL:
            return R"({"type": "boolean"})";
        case FieldDescriptor::CPPTYPE_INT32:
        case FieldDescriptor::CPPTYPE_INT64:
        case FieldDescriptor::CPPTYPE_UINT32:
            return R"({"type": "long"})";
        case FieldDescriptor::CPPTYPE_UINT64:  // a string in JSON, and read as a number
            return R"({"type": "unsigned_long"})";
        case FieldDescriptor::CPPTYPE_DOUBLE:
        case FieldDescriptor::CPPTYPE_FLOAT:
            return R"({"type": "double"})";
        default:
            break;
    }
    const bool words = field->options().GetExtension(v1::field).secrecy() != v1::PLAIN;
    return absl::StrCat(R"({"type": "keyword", "ignore_above": )", kMaxKeyword,
                        words ? R"(, "fields": {"text": {"type": "text"}}})" : "}");
}

void AppendProperties(const Descriptor* message, int depth, std::string* out) {
    const std::string indent(static_cast<size_t>(2 * depth), ' ');
    for (int i = 0; i < message->field_count(); ++i) {
        const FieldDescriptor* field = message->field(i);
        const Descriptor* inner = field->message_type();
        absl::StrAppend(out, i == 0 ? "" : ",\n", indent, "\"", field->name(), "\": ");
        if (inner == nullptr) {
            absl::StrAppend(out, IndexTypeOf(field));
        } else if (field->is_map()) {  // names that the sandboxes' owners chose: kept, not indexed one by one
            absl::StrAppend(out, R"({"type": "object", "enabled": false})");
        } else if (inner->file() != message->file()) {
            absl::StrAppend(out, R"({"type": "date_nanos"})");
        } else {
            absl::StrAppend(out, "{\"properties\": {\n");
            AppendProperties(inner, depth + 1, out);
            absl::StrAppend(out, "\n", indent, "}}");
        }
    }
}

std::string IndexTemplate() {
    std::string text = R"({
  "index_patterns": ["stockade-*"],
  "priority": 200,
  "_meta": {"description": "Events of Stockade, format json; printed from userspace/model/event.proto"},
  "template": {
    "settings": {"index.mapping.total_fields.limit": 2000},
    "mappings": {
      "dynamic": false,
      "properties": {
)";
    AppendProperties(v1::Event::descriptor(), 4, &text);
    return text + "\n      }\n    }\n  }\n}\n";
}

// With STOCKADE_UPDATE_GOLDEN it is written instead.
void ExpectFile(const std::string& name, const std::string& expected) {
    const char* root = std::getenv("STOCKADE_SOURCE_DIR");
    ASSERT_NE(root, nullptr) << "STOCKADE_SOURCE_DIR is not set";
    const std::string path = absl::StrCat(root, "/", name);
    if (std::getenv("STOCKADE_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << expected;
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    EXPECT_EQ(text.str(), expected) << "to write it anew: STOCKADE_UPDATE_GOLDEN=1 " << path;
}

TEST(EventFields, DocumentIsThatOfTheProto) { ExpectFile("docs/event-fields.md", FieldsMarkdown()); }

TEST(EventFields, IndexTemplateIsThatOfTheProto) {
    const std::string text = IndexTemplate();
    ExpectFile("deploy/opensearch/stockade-events.json", text);
    google::protobuf::Struct parsed;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(text, &parsed).ok()) << text;
}

}  // namespace
}  // namespace stockade::model
