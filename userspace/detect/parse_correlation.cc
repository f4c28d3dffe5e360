#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/detect/correlate.h"
#include "userspace/detect/document.h"
#include "userspace/detect/modifiers.h"

namespace stockade::detect {
namespace {

using policy::Reader;
using policy::YamlNode;
using Type = Correlation::Type;

const std::vector<std::pair<std::string, Type>>& Types() {
    static const auto* const types =
        new std::vector<std::pair<std::string, Type>>{{"event_count", Type::kEventCount},
                                                      {"value_count", Type::kValueCount},
                                                      {"temporal", Type::kTemporal},
                                                      {"temporal_ordered", Type::kTemporalOrdered},
                                                      {"value_sum", Type::kValueSum},
                                                      {"value_avg", Type::kValueAvg},
                                                      {"value_percentile", Type::kValuePercentile}};
    return *types;
}

bool IsTemporal(Type type) { return type == Type::kTemporal || type == Type::kTemporalOrdered; }
bool IsCount(Type type) { return type == Type::kEventCount || type == Type::kValueCount || IsTemporal(type); }

class CorrelationReader {
  public:
    explicit CorrelationReader(Reader& reader) : reader_(reader) {}

    std::optional<Correlation> Read(const YamlNode& node) {
        out_.at = reader_.At(node);
        const size_t before = reader_.found();
        const auto bind = [this](void (CorrelationReader::*read)(const YamlNode&)) {
            return [this, read](const YamlNode& value) { (this->*read)(value); };
        };
        const bool map = reader_.Map(node, "correlation",
                                     {{"type", bind(&CorrelationReader::ReadType), true},
                                      {"rules", bind(&CorrelationReader::ReadRules), true},
                                      {"group-by", bind(&CorrelationReader::ReadGroup)},
                                      {"timespan",
                                       [this](const YamlNode& value) {
                                           out_.timespan_ns =
                                               ReadTimespan(value, "timespan", reader_).value_or(0);
                                       },
                                       true},
                                      {"condition", [this](const YamlNode& value) { condition_ = &value; }},
                                      {"aliases", bind(&CorrelationReader::ReadAliases)},
                                      {"generate", bind(&CorrelationReader::ReadGenerate)}});
        if (!map || reader_.found() > before) return std::nullopt;
        ReadCondition(node);
        if (reader_.found() > before) return std::nullopt;
        return std::move(out_);
    }

  private:
    void ReadType(const YamlNode& node) {
        if (node.kind == YamlNode::Kind::kScalar && node.value == "value_median")
            return reader_.Error(
                node, "type 'value_median' is of a later Sigma; write value_percentile with percentile: 50");
        if (const std::optional<Type> type = reader_.Choice<Type>(node, "type", Types())) out_.type = *type;
    }

    void ReadRules(const YamlNode& node) {
        const auto add = [&](const YamlNode& item) {
            if (auto text = reader_.Text(item, "a rule of the correlation"))
                out_.rules.push_back({*text, reader_.At(item)});
        };
        if (node.kind == YamlNode::Kind::kScalar) return add(node);
        reader_.List(node, "rules", add);
        if (out_.rules.empty()) reader_.Error(node, "a correlation of no rules");
        if (out_.rules.size() > kMaxCorrelatedRules)
            reader_.Error(node, absl::StrCat("more than ", kMaxCorrelatedRules, " rules in a correlation"));
    }

    void ReadGroup(const YamlNode& node) {
        out_.group_at = reader_.At(node);
        const auto add = [&](const YamlNode& item) {
            if (auto text = reader_.Text(item, "a field of group-by")) out_.group_by.push_back(*text);
        };
        if (node.kind == YamlNode::Kind::kScalar) return add(node);
        reader_.List(node, "group-by", add);
    }

    void ReadAliases(const YamlNode& node) {
        (void)reader_.FreeMap(node, "aliases", [&](const YamlNode& alias, const YamlNode& value) {
            (void)reader_.FreeMap(value, "an alias", [&](const YamlNode& rule, const YamlNode& field) {
                if (auto text = reader_.Text(field, "a field"))
                    out_.aliases[alias.value][rule.value] = {*text, reader_.At(field)};
            });
            if (out_.aliases[alias.value].empty()) reader_.Error(alias, "an alias of no fields");
        });
    }

    void ReadGenerate(const YamlNode& node) {
        out_.generate =
            reader_.Choice<bool>(node, "generate", {{"true", true}, {"false", false}}).value_or(false);
    }

    void ReadCondition(const YamlNode& whole) {
        if (condition_ == nullptr) {
            // Of temporal ones: all rules.
            if (!IsTemporal(out_.type)) reader_.Error(whole, "a correlation of this type lacks 'condition'");
            return;
        }
        if (condition_->kind == YamlNode::Kind::kScalar)
            return reader_.Error(
                *condition_,
                "conditions in words are of a later Sigma: write {gte: N}, or chain correlations");
        std::vector<Reader::Field> fields;
        for (const char* word : {"gt", "gte", "lt", "lte", "eq", "neq"}) {
            fields.push_back({word, [this, word](const YamlNode& value) { ReadThreshold(word, value); }});
        }
        fields.push_back({"field", [this](const YamlNode& value) { ReadField(value); }});
        fields.push_back({"percentile", [this](const YamlNode& value) { ReadPercentile(value); }});
        if (!reader_.Map(*condition_, "condition", fields)) return;
        CheckCondition();
    }

    void ReadField(const YamlNode& node) {
        out_.field_at = reader_.At(node);
        const auto add = [&](const YamlNode& item) {
            if (auto text = reader_.Text(item, "field")) out_.fields.push_back(*text);
        };
        if (node.kind == YamlNode::Kind::kScalar) return add(node);
        reader_.List(node, "field", add);
    }

    std::optional<long double> ReadNumber(const YamlNode& node, const char* what) {
        std::optional<Scalar> scalar = ReadScalar(node, what, reader_);
        if (scalar && scalar->kind == Scalar::Kind::kNumber) return scalar->number;
        if (scalar) reader_.Error(node, absl::StrCat(what, " must be a number"));
        return std::nullopt;
    }

    void ReadThreshold(const char* word, const YamlNode& node) {
        threshold_ = true;  // also a wrong one: it is not told twice
        const std::optional<long double> number = ReadNumber(node, word);
        if (!number) return;
        if (IsCount(out_.type) &&
            (*number < 0 || *number != static_cast<long double>(static_cast<int64_t>(*number))))
            return reader_.Error(node, absl::StrCat(word, " must be a whole number"));
        if (IsCount(out_.type) && *number > kMaxGroupEvents)
            return reader_.Error(
                node, absl::StrCat("more than ", kMaxGroupEvents, ": a group remembers no more events"));
        out_.conditions.emplace_back(*CompareNamed(word), *number);
    }

    void ReadPercentile(const YamlNode& node) {
        const std::optional<long double> number = ReadNumber(node, "percentile");
        if (!number) return;
        if (*number <= 0 || *number > 100)
            return reader_.Error(node, "percentile must be above 0 and at most 100");
        out_.percentile = *number;
    }

    void CheckCondition() {
        const bool values = out_.type != Type::kEventCount && !IsTemporal(out_.type);
        if (!threshold_)
            reader_.Error(*condition_, "condition lacks a comparison: gt, gte, lt, lte, eq or neq");
        if (values && out_.fields.empty()) reader_.Error(*condition_, "condition lacks 'field'");
        if (!values && !out_.fields.empty())
            reader_.Error(*condition_, "'field' belongs to correlations of values");
        if (out_.fields.size() > 1 && out_.type != Type::kValueCount)
            reader_.Error(*condition_, "several fields can only be counted (value_count)");
        if (out_.type == Type::kValuePercentile && out_.percentile == 0)
            reader_.Error(*condition_, "condition lacks 'percentile'");
        if (out_.type != Type::kValuePercentile && out_.percentile != 0)
            reader_.Error(*condition_, "'percentile' belongs to value_percentile");
        CheckReachable();
    }

    // Whole counts from 1 up to all rules, or to what a group remembers.
    void CheckReachable() {
        if (!IsCount(out_.type) || out_.conditions.empty()) return;
        const int64_t most = IsTemporal(out_.type) ? static_cast<int64_t>(out_.rules.size())
                                                   : static_cast<int64_t>(kMaxGroupEvents);
        for (int64_t count = 1; count <= most; ++count) {
            bool holds = true;
            for (const auto& [compare, number] : out_.conditions)
                holds = holds && Holds(compare, static_cast<long double>(count), number);
            if (holds) return;
        }
        reader_.Error(*condition_, "this condition can never hold");
    }

    Reader& reader_;
    Correlation out_;
    const YamlNode* condition_ = nullptr;
    bool threshold_ = false;
};

}  // namespace

std::optional<int64_t> ReadTimespan(const YamlNode& node, absl::string_view what, Reader& reader) {
    std::optional<std::string> text = reader.Text(node, what);
    if (!text) return std::nullopt;
    int64_t number = 0, seconds = 0;
    const char unit = text->empty() ? ' ' : text->back();
    seconds = unit == 's' ? 1 : unit == 'm' ? 60 : unit == 'h' ? 3600 : unit == 'd' ? 86400 : 0;
    const std::string digits = text->substr(0, text->empty() ? 0 : text->size() - 1);
    if (seconds == 0 || digits.find_first_not_of("0123456789") != digits.npos ||
        !absl::SimpleAtoi(digits, &number) || number == 0 || number > kMaxTimespanSeconds / seconds) {
        reader.Error(node,
                     absl::StrCat(what, " must be written 10s, 5m, 1h or 7d, at most ",
                                  kMaxTimespanSeconds / 86400, "d, not '", Reader::Printable(*text), "'"));
        return std::nullopt;
    }
    return number * seconds * 1'000'000'000;
}

std::optional<Correlation> ReadCorrelation(const YamlNode& node, Reader& reader) {
    return CorrelationReader(reader).Read(node);
}

std::optional<Response> ReadResponse(const YamlNode& node, const Source& source, bool correlation,
                                     Reader& reader) {
    Response out;
    out.at = reader.At(node);
    const size_t before = reader.found();
    const std::vector<std::pair<std::string, ResponseAction>> actions = {
        {"alert", ResponseAction::kAlert},
        {"deny", ResponseAction::kDeny},
        {"kill-process", ResponseAction::kKillProcess},
        {"kill-sandbox", ResponseAction::kKillSandbox},
        {"isolate-network", ResponseAction::kIsolateNetwork},
        {"freeze", ResponseAction::kFreeze}};
    const YamlNode* deny = nullptr;
    const YamlNode* scope = nullptr;
    const auto read_scope = [&](const YamlNode& value) {
        scope = &value;
        out.scope_group =
            reader.Choice<bool>(value, "scope", {{"sandbox", false}, {"group", true}}).value_or(false);
    };
    (void)reader.Map(
        node, "response",
        {{"action",
          [&](const YamlNode& v) {
              out.action = reader.Choice<ResponseAction>(v, "action", actions).value_or(out.action);
          },
          true},
         {"throttle",
          [&](const YamlNode& v) { out.throttle_ns = ReadTimespan(v, "throttle", reader).value_or(0); }},
         {"once_per",
          [&](const YamlNode& v) {
              out.once_per =
                  reader.Choice<std::string>(v, "once_per", {{"sandbox", "sandbox"}, {"session", "session"}})
                      .value_or("");
          }},
         {"scope", read_scope},
         {"deny", [&](const YamlNode& v) { deny = &v; }}});
    if (scope != nullptr && out.scope_group && !correlation)
        reader.Error(*scope, "scope: group belongs to a correlation");
    if ((deny != nullptr) != (out.action == ResponseAction::kDeny) && reader.found() == before)
        reader.Error(node, deny != nullptr ? "'deny' belongs to action: deny"
                                           : "action: deny lacks 'deny': {read: FIELD}");
    if (deny != nullptr) {
        std::vector<Reader::Field> fields;
        for (const char* word : {"exec", "read", "write", "connect", "dns"}) {
            fields.push_back({word, [&, word](const YamlNode& value) {
                                  std::optional<std::string> name = reader.Text(value, "a field");
                                  if (!name) return;
                                  const Field* field = FindField(source, *name);
                                  if (field == nullptr || field->kind == Field::Kind::kUnrecorded)
                                      return reader.Error(
                                          value,
                                          absl::StrCat("unknown field '", Reader::Printable(*name), "'",
                                                       policy::Suggest(*name, FieldNames(source))));
                                  out.deny[word] = field;
                              }});
        }
        (void)reader.Map(*deny, "deny", fields);
        if (out.deny.empty() && reader.found() == before) reader.Error(*deny, "'deny' names nothing");
    }
    if (reader.found() > before) return std::nullopt;
    return out;
}

}  // namespace stockade::detect
