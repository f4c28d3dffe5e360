#include "absl/strings/str_cat.h"
#include "userspace/detect/document.h"
#include "userspace/detect/parse.h"
#include "userspace/detect/sample.h"
#include "userspace/model/json.h"

namespace stockade::detect {
namespace {

using policy::Reader;
using policy::YamlNode;

// As many as a correlation can count, and then some.
constexpr size_t kMaxTestEvents = 20'000;

class TestReader {
  public:
    TestReader(const Source& source, Reader& reader) : source_(source), reader_(reader) {}

    std::vector<RuleTest> Read(const YamlNode& node) {
        const auto list = [this](RuleTest::Kind kind) {
            return [this, kind](const YamlNode& value) {
                reader_.List(value, "samples", [&](const YamlNode& item) { ReadSample(kind, item); });
            };
        };
        (void)reader_.Map(node, "tests",
                          {{"fires", list(RuleTest::Kind::kFires)},
                           {"silent", list(RuleTest::Kind::kSilent)},
                           {"undecidable", list(RuleTest::Kind::kUndecidable)}});
        return std::move(tests_);
    }

  private:
    static bool IsStructured(const YamlNode& item) {
        for (size_t i = 0; i + 1 < item.items.size(); i += 2) {
            const std::string& key = item.items[i]->value;
            if (key == "events" || key == "event" || key == "expect") return true;
        }
        return false;
    }

    void ReadSample(RuleTest::Kind kind, const YamlNode& item) {
        if (item.kind != YamlNode::Kind::kMap)
            return reader_.Error(
                item, absl::StrCat("a sample must be a map of fields, not ", policy::KindName(item.kind)));
        RuleTest test{.kind = kind, .at = reader_.At(item)};
        if (!IsStructured(item)) {
            ReadEvent(item, &test);
        } else {
            (void)reader_.Map(
                item, "a sample",
                {{"name", [&](const YamlNode& v) { test.name = reader_.Text(v, "name").value_or(""); }},
                 {"event", [&](const YamlNode& v) { ReadEvent(v, &test); }},
                 {"events",
                  [&](const YamlNode& v) {
                      reader_.List(v, "events", [&](const YamlNode& event) { ReadEvent(event, &test); });
                  }},
                 {"expect", [&](const YamlNode& v) { ReadExpect(v, &test); }}});
        }
        if (test.events.empty()) reader_.Error(item, "a sample without events");
        if (kind != RuleTest::Kind::kFires && (test.count || !test.severity.empty() || !test.groups.empty()))
            reader_.Error(item, "'expect' belongs to samples that fire");
        tests_.push_back(std::move(test));
    }

    void ReadExpect(const YamlNode& node, RuleTest* test) {
        std::vector<std::pair<std::string, std::string>> severities;
        for (const char* word : {"informational", "low", "medium", "high", "critical"})
            severities.emplace_back(word, word);
        (void)reader_.Map(
            node, "expect",
            {{"count",
              [&](const YamlNode& v) { test->count = reader_.Number(v, "count", 1, kMaxTestEvents); }},
             {"severity",
              [&](const YamlNode& v) {
                  test->severity = reader_.Choice<std::string>(v, "severity", severities).value_or("");
              }},
             {"groups", [&](const YamlNode& v) {
                  reader_.List(v, "groups", [&](const YamlNode& group) {
                      if (auto text = reader_.Text(group, "a group")) test->groups.push_back(*text);
                  });
              }}});
    }

    // Fields, and beside them: source, after, repeat, json.
    void ReadEvent(const YamlNode& node, RuleTest* test) {
        if (node.kind != YamlNode::Kind::kMap) return reader_.Error(node, "an event must be a map of fields");
        Source source = source_;
        const YamlNode* json = nullptr;
        uint64_t repeat = 1;
        int64_t after = 0;
        std::vector<std::pair<const YamlNode*, const YamlNode*>> fields;
        (void)reader_.FreeMap(node, "an event", [&](const YamlNode& key, const YamlNode& value) {
            if (key.value == "source") return ReadSource(value, &source);
            if (key.value == "json") return void(json = &value);
            if (key.value == "after") return void(after = ReadTimespan(value, "after", reader_).value_or(0));
            if (key.value == "repeat")
                return void(repeat = reader_.Number(value, "repeat", 1, kMaxTestEvents).value_or(1));
            fields.emplace_back(&key, &value);
        });
        if (json == nullptr && source.category.empty())
            return reader_.Error(node, "an event needs 'source': a category such as process_creation");
        TestEvent sample{.event = BlankEvent(source), .after_ns = after, .at = reader_.At(node)};
        if (json != nullptr) ReadJson(*json, !fields.empty(), &sample);
        for (const auto& [key, value] : fields) SetOne(source, *key, *value, &sample.event);
        if (test->events.size() + repeat > kMaxTestEvents)
            return reader_.Error(node, absl::StrCat("more than ", kMaxTestEvents, " events in a sample"));
        test->events.insert(test->events.end(), repeat, sample);
    }

    void ReadSource(const YamlNode& node, Source* source) {
        std::optional<std::string> text = reader_.Text(node, "source");
        if (!text) return;
        std::string why;
        std::optional<Source> found = FindSource("stockade", *text, "", &why);
        if (!found) return reader_.Error(node, absl::StrCat("source: ", why));
        *source = *std::move(found);
    }

    void ReadJson(const YamlNode& node, bool more, TestEvent* sample) {
        if (more) return reader_.Error(node, "an event is given by json or by fields");
        std::optional<std::string> text = reader_.Text(node, "json");
        if (!text) return;
        StatusOr<v1::Event> event = model::FromJsonLine(*text);
        if (!event.ok())
            return reader_.Error(node, absl::StrCat("json: ", Reader::Printable(event.status().message())));
        sample->event = *std::move(event);
    }

    void SetOne(const Source& source, const YamlNode& key, const YamlNode& value, v1::Event* event) {
        const Field* field = FindField(source, key.value);
        if (field == nullptr)
            return reader_.Error(
                key, absl::StrCat("unknown field '", Reader::Printable(key.value), "' of ", ToString(source),
                                  policy::Suggest(key.value, FieldNames(source))));
        std::vector<std::string> values;
        const auto add = [&](const YamlNode& item) {
            if (auto text = reader_.Text(item, "a value")) values.push_back(*text);
        };
        if (value.kind == YamlNode::Kind::kSequence) {
            for (const policy::YamlPtr& item : value.items) add(*item);
        } else {
            add(value);
        }
        const Status set = SetField(*field, values, event);
        if (!set.ok()) reader_.Error(value, std::string(set.message()));
    }

    const Source& source_;
    Reader& reader_;
    std::vector<RuleTest> tests_;
};

}  // namespace

std::vector<RuleTest> ReadTests(const YamlNode& node, const Source& source, Reader& reader) {
    return TestReader(source, reader).Read(node);
}

}  // namespace stockade::detect
