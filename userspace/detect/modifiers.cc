#include "userspace/detect/modifiers.h"

#include <re2/re2.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "userspace/detect/encodings.h"
#include "userspace/detect/text.h"
#include "userspace/policy/parse.h"

namespace stockade::detect {
namespace {

using policy::YamlNode;

const std::vector<std::string>& Known() {
    static const auto* const words = new std::vector<std::string>{
        "all",   "startswith", "endswith", "contains", "exists",       "cased",   "neq",     "re",
        "i",     "m",          "s",        "base64",   "base64offset", "utf16le", "wide",    "utf16be",
        "utf16", "windash",    "lt",       "lte",      "gt",           "gte",     "minute",  "hour",
        "day",   "week",       "month",    "year",     "cidr",         "expand",  "fieldref"};
    return *words;
}

// A value on its way through the modifiers.
struct Value {
    enum class Kind { kText, kNumber, kBool, kNull, kRegex, kCidr, kFieldRef, kExists, kTimePart };
    Kind kind = Kind::kText;
    std::vector<Pattern> patterns{};  // kText: any of them
    std::string text{};               // as written
    std::string flags{};              // kRegex
    bool cased = false;
    long double number = 0;
    Compare compare = Compare::kEq;
    TimePart part = TimePart::kMinute;
    bool truth = false;
    bool front = false, back = false;
    const YamlNode* node = nullptr;
};

const char* KindName(Value::Kind kind) {
    static constexpr const char* kNames[] = {"a text",
                                             "a number",
                                             "true or false",
                                             "null",
                                             "a regular expression",
                                             "an address range",
                                             "a field reference",
                                             "exists",
                                             "a part of a time"};
    return kNames[static_cast<int>(kind)];
}

std::optional<TimePart> TimePartNamed(absl::string_view word) {
    static constexpr const char* kWords[] = {"minute", "hour", "day", "week", "month", "year"};
    for (size_t i = 0; i < std::size(kWords); ++i) {
        if (word == kWords[i]) return static_cast<TimePart>(i);
    }
    return std::nullopt;
}

class Item {
  public:
    Item(const YamlNode& key_node, absl::string_view key, ItemContext& context)
        : key_node_(key_node), key_(key), context_(context) {}

    std::optional<Expr> Parse(const YamlNode& value) {
        if (!SplitKey() || !FindItsField() || !ReadValues(value) || !CheckLists(value)) return std::nullopt;
        for (size_t i = 0; i < modifiers_.size(); ++i) {
            for (Value& each : values_) {
                if (!Apply(i, each)) return std::nullopt;
            }
        }
        Expr all{.kind = Has("all") ? Expr::Kind::kAnd : Expr::Kind::kOr};
        for (Value& each : values_) {
            std::optional<Expr> expr = Finish(each);
            if (!expr) return std::nullopt;
            all.kids.push_back(*std::move(expr));
        }
        if (!Has("neq")) return all;
        Expr negated{.kind = Expr::Kind::kNot};
        negated.kids.push_back(std::move(all));
        return negated;
    }

  private:
    bool Fail(const YamlNode& node, std::string why) {
        context_.reader.Error(node, std::move(why));
        return false;
    }
    bool Has(absl::string_view word) const {
        return std::find(modifiers_.begin(), modifiers_.end(), word) != modifiers_.end();
    }

    bool SplitKey() {
        modifiers_ = absl::StrSplit(key_, '|');
        field_name_ = modifiers_.front();
        modifiers_.erase(modifiers_.begin());
        for (size_t i = 0; i < modifiers_.size(); ++i) {
            const std::string& word = modifiers_[i];
            if (std::find(Known().begin(), Known().end(), word) == Known().end())
                return Fail(key_node_, absl::StrCat("unknown modifier '", policy::Reader::Printable(word),
                                                    "'", policy::Suggest(word, Known())));
            if (word == "expand")
                return Fail(
                    key_node_,
                    "modifier 'expand' is not supported: there are no placeholders here; write the values");
            if (std::find(modifiers_.begin(), modifiers_.begin() + static_cast<std::ptrdiff_t>(i), word) !=
                modifiers_.begin() + static_cast<std::ptrdiff_t>(i))
                return Fail(key_node_, absl::StrCat("modifier '", word, "' twice"));
        }
        return true;
    }

    bool FindItsField() {
        if (field_name_.empty()) return true;
        field_ = Named(key_node_, field_name_);
        return field_ != nullptr;
    }

    const Field* Named(const YamlNode& node, const std::string& name) {
        const Field* field = FindField(context_.source, name);
        if (field == nullptr) {
            Fail(node,
                 absl::StrCat("unknown field '", policy::Reader::Printable(name), "' of ",
                              ToString(context_.source), policy::Suggest(name, FieldNames(context_.source))));
        } else if (field->kind == Field::Kind::kUnrecorded) {
            context_.reader.Warn(
                node, absl::StrCat("field '", name, "' is in no event of ", ToString(context_.source),
                                   ": what rests on it is undecidable"));
        } else if (field->empty_is_unknown) {
            context_.reader.Warn(node, absl::StrCat("few events of ", ToString(context_.source), " have '",
                                                    name, "': in others what rests on it is undecidable"));
        }
        return field;
    }

    bool ReadValues(const YamlNode& node) {
        std::vector<const YamlNode*> nodes;
        if (node.kind == YamlNode::Kind::kSequence) {
            for (const policy::YamlPtr& item : node.items) nodes.push_back(item.get());
            if (nodes.empty()) return Fail(node, "an empty list of values matches nothing");
        } else {
            nodes.push_back(&node);
        }
        for (const YamlNode* each : nodes) {
            if (each->kind == YamlNode::Kind::kMap || each->kind == YamlNode::Kind::kSequence)
                return Fail(*each, absl::StrCat("a value must be a text or a number, not ",
                                                policy::KindName(each->kind)));
            std::optional<Scalar> scalar = ReadScalar(*each, "a value", context_.reader);
            if (!scalar) return false;
            if (scalar->kind == Scalar::Kind::kNull && nodes.size() > 1)
                return Fail(*each,
                            "null cannot stand in a list of values: write a search identifier of its own");
            values_.push_back(Start(*scalar, *each));
        }
        return true;
    }

    static Value Start(const Scalar& scalar, const YamlNode& node) {
        Value value{.text = scalar.text, .node = &node};
        switch (scalar.kind) {
            case Scalar::Kind::kText:
                value.kind = Value::Kind::kText;
                value.patterns.push_back(ParsePattern(scalar.text));
                break;
            case Scalar::Kind::kNumber:
                value.kind = Value::Kind::kNumber;
                value.number = scalar.number;
                break;
            case Scalar::Kind::kBool:
                value.kind = Value::Kind::kBool;
                value.truth = scalar.truth;
                break;
            case Scalar::Kind::kNull:
                value.kind = Value::Kind::kNull;
                break;
        }
        return value;
    }

    bool CheckLists(const YamlNode& node) {
        if (Has("all") && values_.size() == 1)
            return Fail(key_node_, "modifier 'all' needs a list of at least two values");
        if (values_.front().kind == Value::Kind::kNull) {
            if (field_ == nullptr) return Fail(node, "null needs a field");
            for (const std::string& word : modifiers_) {
                if (word != "neq")
                    return Fail(node, absl::StrCat("modifier '", word, "' cannot be applied to null"));
            }
        }
        return true;
    }

    bool Wrong(const std::string& word, const Value& value) {
        const char* hint = value.kind == Value::Kind::kNumber && value.node->kind == YamlNode::Kind::kScalar
                               ? ": write it in quotes"
                               : "";
        return Fail(*value.node,
                    absl::StrCat("modifier '", word, "' cannot be applied to ", KindName(value.kind), hint));
    }

    bool Apply(size_t place, Value& value) {
        const std::string& word = modifiers_[place];
        if (word == "all" || word == "neq") return true;
        if (word == "contains" || word == "startswith" || word == "endswith") return Anchor(word, value);
        if (word == "re" || word == "cidr" || word == "fieldref" || word == "exists")
            return Become(place, value);
        if (word == "i" || word == "m" || word == "s") {
            if (value.kind != Value::Kind::kRegex)
                return Fail(key_node_, absl::StrCat("modifier '", word, "' must come after 're'"));
            value.flags += word;
            return true;
        }
        if (word == "cased") {
            if (value.kind != Value::Kind::kText) return Wrong(word, value);
            value.cased = true;
            return true;
        }
        if (const std::optional<Compare> compare = CompareNamed(word)) {
            if (value.kind == Value::Kind::kText)
                return Fail(*value.node, absl::StrCat("modifier '", word, "' needs a number"));
            if (value.kind != Value::Kind::kNumber && value.kind != Value::Kind::kTimePart)
                return Wrong(word, value);
            value.compare = *compare;
            return true;
        }
        if (const std::optional<TimePart> part = TimePartNamed(word)) return ToTimePart(word, *part, value);
        return Encode(place, value);
    }

    bool Anchor(const std::string& word, Value& value) {
        const bool front = word != "startswith", back = word != "endswith";
        if (value.kind == Value::Kind::kFieldRef) {
            value.front = value.front || back;
            value.back = value.back || front;
            return true;
        }
        if (value.kind == Value::Kind::kRegex)
            return Fail(key_node_,
                        absl::StrCat("modifier '", word,
                                     "' after 're' changes nothing: write ^ or $ where it is meant"));
        if (value.kind != Value::Kind::kText) return Wrong(word, value);
        for (Pattern& pattern : value.patterns) pattern = pattern.WithStars(front, back);
        return true;
    }

    // Modifiers that make something else of a plain value and so come first.
    bool Become(size_t place, Value& value) {
        const std::string& word = modifiers_[place];
        for (size_t i = 0; i < place; ++i) {
            if (modifiers_[i] != "all" && modifiers_[i] != "neq")
                return Fail(key_node_,
                            absl::StrCat("modifier '", word, "' must come before '", modifiers_[i], "'"));
        }
        if (word != "re" && field_ == nullptr)
            return Fail(key_node_, absl::StrCat("modifier '", word, "' needs a field"));
        if (word == "exists") {
            if (value.kind != Value::Kind::kBool)
                return Fail(*value.node, "modifier 'exists' needs true or false");
            if (values_.size() > 1) return Fail(*value.node, "modifier 'exists' needs one value");
            value.kind = Value::Kind::kExists;
            return true;
        }
        // A regular expression of digits only is one all the same.
        if (word == "re" && value.kind == Value::Kind::kNumber) value.kind = Value::Kind::kText;
        if (value.kind != Value::Kind::kText) return Wrong(word, value);
        if (word == "re") {
            value.kind = Value::Kind::kRegex;
            return true;
        }
        if (value.patterns[0].HasWildcard())
            return Fail(*value.node, absl::StrCat("modifier '", word, "' takes no wildcards"));
        value.kind = word == "cidr" ? Value::Kind::kCidr : Value::Kind::kFieldRef;
        value.text = value.patterns[0].Plain();
        return true;
    }

    bool ToTimePart(const std::string& word, TimePart part, Value& value) {
        if (value.kind != Value::Kind::kNumber)
            return Fail(*value.node, absl::StrCat("modifier '", word, "' needs a number"));
        if (value.compare != Compare::kEq)
            return Fail(key_node_, absl::StrCat("modifier '", word, "' must come before the comparison"));
        if (field_ == nullptr || field_->kind != Field::Kind::kTime)
            return Fail(key_node_,
                        absl::StrCat("modifier '", word, "' needs a field that is a time, such as UtcTime"));
        value.kind = Value::Kind::kTimePart;
        value.part = part;
        return true;
    }

    bool Encode(size_t place, Value& value) {
        const std::string& word = modifiers_[place];
        if (value.kind != Value::Kind::kText) return Wrong(word, value);
        if (word == "windash") {
            std::vector<Pattern> out;
            for (const Pattern& pattern : value.patterns) {
                if (!AddDashes(pattern, kMaxDashes, &out))
                    return Fail(*value.node,
                                absl::StrCat("modifier 'windash' takes at most ", kMaxDashes,
                                             " dashes a value: write the variants that are meant"));
            }
            value.patterns = std::move(out);
            return true;
        }
        const bool utf16 = word == "utf16" || word == "utf16le" || word == "utf16be" || word == "wide";
        if (utf16) {
            const std::string next = place + 1 < modifiers_.size() ? modifiers_[place + 1] : "";
            if (next != "base64" && next != "base64offset")
                return Fail(key_node_, absl::StrCat("modifier '", word,
                                                    "' must be followed by 'base64' or 'base64offset'"));
        }
        std::vector<Pattern> out;
        for (const Pattern& pattern : value.patterns) {
            if (pattern.HasWildcard())
                return Fail(*value.node, absl::StrCat("modifier '", word, "' takes no wildcards"));
            const std::string plain = pattern.Plain();
            if (utf16) {
                out.push_back(LiteralPattern(ToUtf16(plain, word == "utf16be", word == "utf16")));
            } else if (word == "base64") {
                out.push_back(LiteralPattern(ToBase64(plain)));
            } else {
                for (const std::string& text : Base64Offsets(plain)) {
                    if (text.empty())
                        return Fail(*value.node,
                                    "too short for 'base64offset': at some offset nothing of it is certain");
                    out.push_back(LiteralPattern(text));
                }
            }
        }
        value.patterns = std::move(out);
        return true;
    }

    Predicate Make(Predicate::Op op, const Value& value) {
        Predicate atom;
        atom.op = op;
        atom.field = field_;
        atom.written = absl::StrCat(key_.empty() ? "keyword" : key_, ": ",
                                    value.kind == Value::Kind::kNull ? "null" : value.text);
        atom.at = context_.reader.At(*value.node);
        return atom;
    }

    Expr Add(Predicate atom) {
        context_.atoms.push_back(std::move(atom));
        return {.kind = Expr::Kind::kAtom, .atom = static_cast<int>(context_.atoms.size()) - 1};
    }

    std::optional<Expr> Finish(Value& value) {
        switch (value.kind) {
            case Value::Kind::kText:
                return Texts(value);
            case Value::Kind::kBool:
                value.patterns = {LiteralPattern(value.truth ? "true" : "false")};
                return Texts(value);
            case Value::Kind::kNumber:
                return Number(value);
            case Value::Kind::kRegex:
                return Regex(value);
            case Value::Kind::kCidr:
                return Cidr(value);
            case Value::Kind::kFieldRef: {
                Predicate atom = Make(Predicate::Op::kFieldRef, value);
                atom.other = Named(*value.node, value.text);
                if (atom.other == nullptr) return std::nullopt;
                atom.front = value.front;
                atom.back = value.back;
                return Add(std::move(atom));
            }
            case Value::Kind::kNull:
                return Add(Make(Predicate::Op::kNull, value));
            case Value::Kind::kExists: {
                Predicate atom = Make(Predicate::Op::kExists, value);
                atom.exists = value.truth;
                return Add(std::move(atom));
            }
            case Value::Kind::kTimePart: {
                Predicate atom = Make(Predicate::Op::kTimePart, value);
                atom.part = value.part;
                atom.compare = value.compare;
                atom.number = value.number;
                return Add(std::move(atom));
            }
        }
        return std::nullopt;
    }

    std::optional<Expr> Texts(const Value& value) {
        Expr any{.kind = Expr::Kind::kOr};
        for (const Pattern& pattern : value.patterns) {
            Predicate atom = Make(Predicate::Op::kPattern, value);
            atom.cased = value.cased;
            const Pattern whole = field_ == nullptr ? pattern.WithStars(true, true) : pattern;
            if (field_ == nullptr && whole.LongestText().empty()) {
                Fail(*value.node, "a keyword without a letter matches every event");
                return std::nullopt;
            }
            atom.pattern = value.cased ? whole : whole.Folded();
            any.kids.push_back(Add(std::move(atom)));
        }
        return any.kids.size() == 1 ? std::move(any.kids[0]) : any;
    }

    std::optional<Expr> Number(const Value& value) {
        Predicate atom = Make(Predicate::Op::kNumber, value);
        if (field_ == nullptr) {
            atom.op = Predicate::Op::kPattern;
            atom.pattern = LiteralPattern(value.text).WithStars(true, true);
        } else if (field_->kind == Field::Kind::kText && value.compare == Compare::kEq) {
            atom.op = Predicate::Op::kPattern;
            atom.pattern = LiteralPattern(value.text);
        }
        atom.number = value.number;
        atom.compare = value.compare;
        return Add(std::move(atom));
    }

    std::optional<Expr> Regex(const Value& value) {
        if (value.text.size() > kMaxRegexBytes) {
            Fail(*value.node, absl::StrCat("a regular expression of more than ", kMaxRegexBytes, " bytes"));
            return std::nullopt;
        }
        RE2::Options options;
        options.set_log_errors(false);
        const std::string flags = value.flags.empty() ? "" : absl::StrCat("(?", value.flags, ")");
        auto regex = std::make_shared<const re2::RE2>(absl::StrCat(flags, value.text), options);
        if (!regex->ok()) {
            const bool perl =
                regex->error_code() == RE2::ErrorBadPerlOp || regex->error_code() == RE2::ErrorBadEscape;
            Fail(*value.node,
                 absl::StrCat(
                     "RE2 does not take this regular expression: ", policy::Reader::Printable(regex->error()),
                     perl ? " (it has no look-around, no back-references and no atomic groups)" : ""));
            return std::nullopt;
        }
        Predicate atom = Make(Predicate::Op::kRegex, value);
        atom.regex = std::move(regex);
        return Add(std::move(atom));
    }

    std::optional<Expr> Cidr(const Value& value) {
        StatusOr<policy::NetworkRule> network = policy::ParseCidr(value.text);
        if (!network.ok()) {
            Fail(*value.node, std::string(network.status().message()));
            return std::nullopt;
        }
        Predicate atom = Make(Predicate::Op::kCidr, value);
        atom.network = *std::move(network);
        return Add(std::move(atom));
    }

    const YamlNode& key_node_;
    const std::string key_;
    ItemContext& context_;
    std::string field_name_;
    std::vector<std::string> modifiers_;
    const Field* field_ = nullptr;
    std::vector<Value> values_;
};

}  // namespace

std::optional<Expr> ParseItem(const YamlNode& key_node, absl::string_view key, const YamlNode& value,
                              ItemContext& context) {
    return Item(key_node, key, context).Parse(value);
}

}  // namespace stockade::detect
