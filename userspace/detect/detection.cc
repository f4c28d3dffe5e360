#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/detect/condition.h"
#include "userspace/detect/document.h"
#include "userspace/detect/modifiers.h"
#include "userspace/detect/parse.h"

namespace stockade::detect {
namespace {

using policy::Reader;
using policy::YamlNode;

constexpr char kIdentifierChars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

size_t CountNodes(const Expr& expr) {
    size_t count = 1;
    for (const Expr& kid : expr.kids) count += CountNodes(kid);
    return count;
}

class DetectionReader {
  public:
    DetectionReader(const Source& source, Reader& reader) : source_(source), reader_(reader) {}

    std::optional<Detection> Read(const YamlNode& node, absl::string_view what,
                                  const std::vector<std::string>& skip) {
        const YamlNode* condition = nullptr;
        const bool map = reader_.FreeMap(node, what, [&](const YamlNode& key, const YamlNode& value) {
            if (std::find(skip.begin(), skip.end(), key.value) != skip.end()) return;
            if (key.value == "condition") {
                condition = &value;
            } else if (key.value == "timeframe") {
                reader_.Error(key,
                              "'timeframe' is no longer Sigma: write a correlation document with 'timespan'");
            } else {
                ReadIdentifier(key, value);
            }
        });
        if (!map) return std::nullopt;
        if (condition == nullptr) {
            reader_.Error(node, absl::StrCat(what, " lacks 'condition'"));
            return std::nullopt;
        }
        if (broken_) return std::nullopt;
        std::optional<Expr> expr = ReadCondition(*condition);
        if (!expr) return std::nullopt;
        for (const auto& [name, key] : keys_) {
            if (!used_.contains(name))
                reader_.Error(*key,
                              absl::StrCat("search identifier '", name, "' is not used in the condition"));
        }
        if (CountNodes(*expr) > kMaxExprNodes) {
            reader_.Error(*condition,
                          absl::StrCat("the condition unfolds to more than ", kMaxExprNodes, " parts"));
            return std::nullopt;
        }
        return Detection{std::move(atoms_), *std::move(expr), reader_.At(*condition)};
    }

  private:
    void ReadIdentifier(const YamlNode& key, const YamlNode& value) {
        if (key.value.empty() || key.value.find_first_not_of(kIdentifierChars) != key.value.npos) {
            reader_.Error(key, absl::StrCat("search identifier '", Reader::Printable(key.value),
                                            "': only letters, digits, '_' and '-'"));
            broken_ = true;
            return;
        }
        for (const char* word : {"and", "or", "not", "of", "them", "all", "any", "1"}) {
            if (key.value != word) continue;
            reader_.Error(key, absl::StrCat("a search identifier cannot be called '", word, "'"));
            broken_ = true;
            return;
        }
        keys_[key.value] = &key;
        std::optional<Expr> expr = ReadSearch(key, value);
        if (!expr) {
            broken_ = true;
            return;
        }
        expr->name = key.value;
        identifiers_[key.value] = *std::move(expr);
        if (atoms_.size() > kMaxAtoms && !broken_) {
            reader_.Error(key, absl::StrCat("more than ", kMaxAtoms, " values in a rule"));
            broken_ = true;
        }
    }

    // A map of fields, a list of such or of keywords, or one keyword.
    std::optional<Expr> ReadSearch(const YamlNode& key, const YamlNode& value) {
        switch (value.kind) {
            case YamlNode::Kind::kMap:
                return ReadMap(value);
            case YamlNode::Kind::kSequence:
                return ReadList(key, value);
            case YamlNode::Kind::kScalar:
                return Keywords(key, value);
            case YamlNode::Kind::kNull:
                break;
        }
        reader_.Error(key, "an empty search identifier");
        return std::nullopt;
    }

    std::optional<Expr> ReadMap(const YamlNode& value) {
        Expr all{.kind = Expr::Kind::kAnd};
        bool failed = false;
        if (value.items.empty()) {
            reader_.Error(value, "an empty map matches nothing");
            return std::nullopt;
        }
        ItemContext context{source_, reader_, atoms_};
        (void)reader_.FreeMap(value, "a search identifier", [&](const YamlNode& key, const YamlNode& item) {
            if (key.value.empty()) {
                reader_.Error(key, "an empty field name");
                failed = true;
                return;
            }
            std::optional<Expr> expr = ParseItem(key, key.value, item, context);
            if (!expr) {
                failed = true;
            } else {
                all.kids.push_back(*std::move(expr));
            }
        });
        if (failed || all.kids.empty()) return std::nullopt;
        return all;
    }

    std::optional<Expr> ReadList(const YamlNode& key, const YamlNode& value) {
        bool maps = false;
        for (const policy::YamlPtr& item : value.items) maps = maps || item->kind == YamlNode::Kind::kMap;
        if (!maps) return Keywords(key, value);
        Expr any{.kind = Expr::Kind::kOr};
        bool failed = false;
        for (const policy::YamlPtr& item : value.items) {
            std::optional<Expr> expr =
                item->kind == YamlNode::Kind::kMap ? ReadMap(*item) : Keywords(key, *item);
            if (!expr) {
                failed = true;
            } else {
                any.kids.push_back(*std::move(expr));
            }
        }
        if (failed) return std::nullopt;
        return any;
    }

    std::optional<Expr> Keywords(const YamlNode& key, const YamlNode& value) {
        ItemContext context{source_, reader_, atoms_};
        return ParseItem(key, "", value, context);
    }

    std::optional<Expr> ReadCondition(const YamlNode& node) {
        if (node.kind != YamlNode::Kind::kSequence)
            return ParseCondition(node, identifiers_, &used_, reader_);
        // A list of conditions: any of them.
        Expr any{.kind = Expr::Kind::kOr};
        for (const policy::YamlPtr& item : node.items) {
            std::optional<Expr> expr = ParseCondition(*item, identifiers_, &used_, reader_);
            if (!expr) return std::nullopt;
            any.kids.push_back(*std::move(expr));
        }
        if (any.kids.empty()) {
            reader_.Error(node, "an empty list of conditions");
            return std::nullopt;
        }
        return any;
    }

    const Source& source_;
    Reader& reader_;
    std::vector<Predicate> atoms_;
    std::map<std::string, Expr> identifiers_;
    std::map<std::string, const YamlNode*> keys_;
    std::set<std::string> used_;
    bool broken_ = false;
};

}  // namespace

std::optional<Detection> ReadDetection(const YamlNode& node, absl::string_view what, const Source& source,
                                       const std::vector<std::string>& skip, Reader& reader) {
    return DetectionReader(source, reader).Read(node, what, skip);
}

}  // namespace stockade::detect
