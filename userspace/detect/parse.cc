#include "userspace/detect/parse.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/sha256.h"
#include "userspace/detect/document.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::detect {
namespace {

using policy::Reader;
using policy::YamlNode;

// The title's bound in the specification.
constexpr size_t kMaxTitle = 256;

const std::vector<std::string>& Keys() {
    static const auto* const keys = new std::vector<std::string>{
        "title",       "id",          "name",   "related",        "taxonomy", "status",
        "description", "license",     "author", "references",     "date",     "modified",
        "logsource",   "detection",   "fields", "falsepositives", "level",    "tags",
        "scope",       "correlation", "filter", "response",       "tests",    "generate"};
    return *keys;
}

const YamlNode* Get(const YamlNode& map, absl::string_view key) {
    for (size_t i = 0; i + 1 < map.items.size(); i += 2) {
        if (map.items[i]->value == key) return map.items[i + 1].get();
    }
    return nullptr;
}

// Content without positions, quotes and comments, so that the hash is of what it means.
void AppendCanonical(const YamlNode& node, std::string* out) {
    absl::StrAppend(out, static_cast<int>(node.kind), node.quoted ? "q" : "p", node.value.size(), ":",
                    node.value, "[");
    for (const policy::YamlPtr& item : node.items) AppendCanonical(*item, out);
    out->push_back(']');
}

// 2026-01-05, or with slashes, as older rules have it.
bool IsDay(const std::string& date) {
    if (date.size() != 10 || (date[4] != '-' && date[4] != '/') || date[7] != date[4]) return false;
    const std::string digits = absl::StrCat(date.substr(0, 4), date.substr(5, 2), date.substr(8, 2));
    int number = 0;
    if (digits.find_first_not_of("0123456789") != digits.npos || !absl::SimpleAtoi(digits, &number))
        return false;
    return std::chrono::year_month_day(std::chrono::year(number / 10000),
                                       std::chrono::month(static_cast<unsigned>(number / 100 % 100)),
                                       std::chrono::day(static_cast<unsigned>(number % 100)))
        .ok();
}

class DocumentReader {
  public:
    DocumentReader(const std::string& file, const YamlNode& root, std::vector<Diagnostic>& diagnostics,
                   Documents* out)
        : reader_(file, diagnostics), root_(root), out_(out) {}

    void Read() {
        if (root_.kind != YamlNode::Kind::kMap) return reader_.Error(root_, "a rule must be a map");
        CheckKeys();
        const YamlNode* detection = Get(root_, "detection");
        const YamlNode* correlation = Get(root_, "correlation");
        const YamlNode* filter = Get(root_, "filter");
        const int kinds = (detection != nullptr) + (correlation != nullptr) + (filter != nullptr);
        if (kinds != 1)
            return reader_.Error(root_, "a document needs exactly one of detection, correlation and filter");
        Rule rule;
        rule.at = reader_.At(root_);
        ReadHead(&rule);
        if (correlation == nullptr) {
            std::optional<Source> source = ReadSource();
            if (!source) return;
            rule.source = *std::move(source);
        } else if (const YamlNode* source = Get(root_, "logsource")) {
            reader_.Error(*source, "a correlation has the log sources of its rules");
        }
        if (filter != nullptr) return ReadFilter(*filter, rule);
        if (detection != nullptr) {
            std::optional<Detection> read = ReadDetection(*detection, "detection", rule.source, {}, reader_);
            if (!read) return Keep(std::move(rule));
            rule.atoms = std::move(read->atoms);
            rule.expr = std::move(read->expr);
            rule.condition_at = read->condition_at;
        } else {
            rule.correlation = ReadCorrelation(*correlation, reader_);
            if (!rule.correlation) return Keep(std::move(rule));
            ReadGenerate(&*rule.correlation);
        }
        ReadOurs(correlation != nullptr, &rule);
        std::string canonical;
        AppendCanonical(root_, &canonical);
        rule.hash = Sha256Hex(canonical);
        Keep(std::move(rule));
    }

  private:
    // What is wrong in a rule is told once, and not again where others refer to it.
    void Keep(Rule rule) { out_->rules.push_back(std::move(rule)); }

    void CheckKeys() {
        (void)reader_.FreeMap(root_, "a rule", [&](const YamlNode& key, const YamlNode&) {
            if (std::find(Keys().begin(), Keys().end(), key.value) != Keys().end()) return;
            // The specification allows fields of one's own; a misspelt one is none.
            const std::string nearest = policy::NearestWord(key.value, Keys());
            if (!nearest.empty())
                return reader_.Error(key, absl::StrCat("unknown key '", Reader::Printable(key.value),
                                                       "'; did you mean '", nearest, "'?"));
            reader_.Warn(key, absl::StrCat("key '", Reader::Printable(key.value),
                                           "' is no key of Sigma's or ours: not used"));
        });
    }

    void TextField(const char* key, std::string* out, bool required = false) {
        const YamlNode* node = Get(root_, key);
        if (node == nullptr) {
            if (required) reader_.Error(root_, absl::StrCat("a rule lacks '", key, "'"));
            return;
        }
        if (std::optional<std::string> text = reader_.Text(*node, key)) *out = *std::move(text);
    }
    void ListField(const char* key, std::vector<std::string>* out) {
        const YamlNode* node = Get(root_, key);
        if (node == nullptr) return;
        reader_.List(*node, key, [&](const YamlNode& item) {
            if (std::optional<std::string> text = reader_.Text(item, absl::StrCat("an item of ", key)))
                out->push_back(*text);
        });
    }
    void DateField(const char* key) {
        std::string date;
        TextField(key, &date);
        if (!date.empty() && !IsDay(date))
            reader_.Error(*Get(root_, key), absl::StrCat(key, " must be a day, written YYYY-MM-DD"));
    }

    void ReadHead(Rule* rule) {
        TextField("title", &rule->title, true);
        if (rule->title.size() > kMaxTitle)
            reader_.Error(*Get(root_, "title"), absl::StrCat("title has more than ", kMaxTitle, " bytes"));
        if (const YamlNode* title = Get(root_, "title");
            title != nullptr && title->kind == YamlNode::Kind::kScalar && title->value.empty())
            reader_.Error(*title, "title is empty");
        TextField("id", &rule->id);
        TextField("name", &rule->name);
        TextField("description", &rule->description);
        TextField("author", &rule->author);
        std::string unused;
        TextField("license", &unused);
        TextField("taxonomy", &unused);
        if (const YamlNode* taxonomy = Get(root_, "taxonomy");
            taxonomy != nullptr && taxonomy->value != "sigma")
            reader_.Error(*taxonomy, "only the taxonomy 'sigma' is supported");
        if (const YamlNode* status = Get(root_, "status")) {
            const std::vector<std::pair<std::string, std::string>> words = {{"stable", "stable"},
                                                                            {"test", "test"},
                                                                            {"experimental", "experimental"},
                                                                            {"deprecated", "deprecated"},
                                                                            {"unsupported", "unsupported"}};
            rule->status = reader_.Choice<std::string>(*status, "status", words).value_or("");
        }
        if (const YamlNode* level = Get(root_, "level")) {
            const std::vector<std::pair<std::string, Level>> words = {
                {"informational", Level::kInformational},
                {"low", Level::kLow},
                {"medium", Level::kMedium},
                {"high", Level::kHigh},
                {"critical", Level::kCritical}};
            rule->level = reader_.Choice<Level>(*level, "level", words).value_or(Level::kMedium);
        }
        DateField("date");
        DateField("modified");
        ReadLists(rule);
    }

    void ReadLists(Rule* rule) {
        ListField("tags", &rule->tags);
        for (const std::string& tag : rule->tags) {
            if (tag.find('.') == tag.npos ||
                tag.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-_") != tag.npos)
                reader_.Error(*Get(root_, "tags"),
                              absl::StrCat("tag '", Reader::Printable(tag),
                                           "' is not written namespace.name in small letters"));
        }
        // A single text is common in the field and means a list of one.
        const YamlNode* positives = Get(root_, "falsepositives");
        if (positives != nullptr && positives->kind == YamlNode::Kind::kScalar) {
            rule->falsepositives.push_back(positives->value);
        } else {
            ListField("falsepositives", &rule->falsepositives);
        }
        ListField("references", &rule->references);
        std::vector<std::string> unused;
        ListField("fields", &unused);
        ListField("scope", &unused);
        const YamlNode* related = Get(root_, "related");
        if (related == nullptr) return;
        reader_.List(*related, "related", [&](const YamlNode& item) {
            (void)reader_.Map(item, "an item of related",
                              {{"id", [&](const YamlNode& id) { (void)reader_.Text(id, "id"); }, true},
                               {"type",
                                [&](const YamlNode& type) {
                                    const std::vector<std::pair<std::string, bool>> words = {
                                        {"derived", true}, {"obsolete", true}, {"merged", true},
                                        {"renamed", true}, {"similar", true},  {"correlation", true}};
                                    (void)reader_.Choice<bool>(type, "type", words);
                                },
                                true}});
        });
    }

    std::optional<Source> ReadSource() {
        const YamlNode* node = Get(root_, "logsource");
        if (node == nullptr) {
            reader_.Error(root_, "a rule lacks 'logsource'");
            return std::nullopt;
        }
        std::string product, category, service, unused;
        const auto text = [&](const char* key, std::string* out) {
            return Reader::Field{key, [this, key, out](const YamlNode& value) {
                                     if (auto read = reader_.Text(value, key)) *out = *std::move(read);
                                 }};
        };
        const size_t before = reader_.found();
        const bool map = reader_.Map(*node, "logsource",
                                     {text("product", &product), text("category", &category),
                                      text("service", &service), text("definition", &unused)});
        if (!map || reader_.found() > before) return std::nullopt;
        std::string why;
        std::optional<Source> source = FindSource(product, category, service, &why);
        if (!source) reader_.Error(*node, absl::StrCat("logsource: ", why));
        return source;
    }

    void ReadFilter(const YamlNode& node, const Rule& head) {
        Filter filter{.id = head.id, .title = head.title, .source = head.source, .at = head.at};
        for (const char* key : {"level", "status", "correlation", "response", "tests", "generate"}) {
            if (const YamlNode* extra = Get(root_, key))
                reader_.Error(*extra, absl::StrCat("a filter has no '", key, "'"));
        }
        if (node.kind != YamlNode::Kind::kMap) return reader_.Error(node, "filter must be a map");
        const YamlNode* rules = Get(node, "rules");
        if (rules == nullptr) {
            reader_.Error(node, "a filter lacks 'rules': a list of ids or names, or 'any'");
        } else if (rules->kind == YamlNode::Kind::kScalar && rules->value == "any") {
            filter.any = true;
        } else {
            reader_.List(*rules, "rules", [&](const YamlNode& item) {
                if (auto text = reader_.Text(item, "a rule of the filter"))
                    filter.rules.push_back({*text, reader_.At(item)});
            });
        }
        std::optional<Detection> detection = ReadDetection(node, "filter", head.source, {"rules"}, reader_);
        if (!detection) return;
        filter.atoms = std::move(detection->atoms);
        filter.expr = std::move(detection->expr);
        out_->filters.push_back(std::move(filter));
    }

    // pySigma has it within the correlation, the specification beside it.
    void ReadGenerate(Correlation* correlation) {
        const YamlNode* node = Get(root_, "generate");
        if (node == nullptr) return;
        const std::vector<std::pair<std::string, bool>> words = {{"true", true}, {"false", false}};
        correlation->generate = reader_.Choice<bool>(*node, "generate", words).value_or(false);
    }

    void ReadOurs(bool correlation, Rule* rule) {
        if (const YamlNode* response = Get(root_, "response"))
            rule->response = ReadResponse(*response, rule->source, correlation, reader_);
        if (const YamlNode* tests = Get(root_, "tests"))
            rule->tests = ReadTests(*tests, rule->source, reader_);
        if (correlation) return;
        if (const YamlNode* generate = Get(root_, "generate"))
            reader_.Error(*generate, "'generate' belongs to a correlation");
    }

    Reader reader_;
    const YamlNode& root_;
    Documents* out_;
};

void Sort(const std::vector<policy::SourceFile>& files, std::vector<Diagnostic>* diagnostics) {
    std::map<std::string, size_t> order;
    for (const policy::SourceFile& file : files) order.emplace(file.name, order.size());
    std::stable_sort(diagnostics->begin(), diagnostics->end(), [&](const Diagnostic& a, const Diagnostic& b) {
        return std::tuple(order[a.at.file], a.at.line, a.at.column) <
               std::tuple(order[b.at.file], b.at.line, b.at.column);
    });
}

}  // namespace

std::vector<std::string> TopLevelKeys() { return Keys(); }

ParsedRules ParseRules(const std::vector<policy::SourceFile>& files) {
    ParsedRules parsed;
    Documents documents;
    for (const policy::SourceFile& file : files) {
        const size_t before = parsed.diagnostics.size();
        const std::vector<policy::YamlPtr> roots = policy::ReadYaml(file.name, file.text, parsed.diagnostics);
        if (roots.empty() && parsed.diagnostics.size() == before)
            parsed.diagnostics.push_back(
                {policy::Severity::kError, {file.name, 1, 1}, "no rule in this file"});
        for (const policy::YamlPtr& root : roots) {
            DocumentReader(file.name, *root, parsed.diagnostics, &documents).Read();
            if (documents.rules.size() > kMaxRules) {
                parsed.diagnostics.push_back({policy::Severity::kError,
                                              {file.name, root->line, root->column},
                                              absl::StrCat("more than ", kMaxRules, " rules")});
                return parsed;
            }
        }
    }
    for (const Rule& rule : documents.rules) CheckPossible(rule, parsed.diagnostics);
    Link(&documents, parsed.diagnostics);
    Sort(files, &parsed.diagnostics);
    parsed.rules = std::move(documents.rules);
    return parsed;
}

}  // namespace stockade::detect
