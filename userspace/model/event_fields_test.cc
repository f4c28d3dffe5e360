// docs/event-fields.md is what event.proto says of each field, and nothing else.
#include <google/protobuf/descriptor.h>
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

TEST(EventFields, DocumentIsThatOfTheProto) {
    const char* root = std::getenv("STOCKADE_SOURCE_DIR");
    ASSERT_NE(root, nullptr) << "STOCKADE_SOURCE_DIR is not set";
    const std::string path = std::string(root) + "/docs/event-fields.md", expected = FieldsMarkdown();
    if (std::getenv("STOCKADE_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << expected;
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    EXPECT_EQ(text.str(), expected) << "write it anew: see the first line of " << path;
}

}  // namespace
}  // namespace stockade::model
