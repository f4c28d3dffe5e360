#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/detect/fields.h"
#include "userspace/policy/nearest.h"

namespace stockade::detect {
namespace {

using Case = v1::Event::PayloadCase;

struct Category {
    const char* name;
    std::vector<Case> payloads;
    std::vector<std::string> words;  // of op or role; empty = all
    const char* section;             // whose `record:` decides; empty = always recorded
    bool sigma;                      // a name that Sigma knows too
};

// The order is that of docs/rules.md.
const std::vector<Category>& Table() {
    static const auto* const table = new std::vector<Category>{
        {"process_creation", {Case::kExec}, {"program", "interpreter"}, "exec", true},
        // What makes a file or changes what is in it, as Sysmon's event 11 means it.
        {"file_event",
         {Case::kFile},
         {"create", "open-write", "truncate", "rename", "link", "symlink", "mknod"},
         "files",
         true},
        {"file_access", {Case::kFile}, {"open-read", "open-by-handle"}, "files", true},
        {"file_delete", {Case::kFile}, {"unlink", "rmdir"}, "files", true},
        {"file_rename", {Case::kFile}, {"rename"}, "files", true},
        {"network_connection", {Case::kNet}, {"connect", "send"}, "network", true},
        {"dns_query", {Case::kDns}, {}, "dns", true},
        {"dns", {Case::kDns}, {}, "dns", true},
        {"library_load", {Case::kExec}, {"mapped"}, "exec", false},
        {"escape", {Case::kEscape}, {}, "", false},
        {"lifecycle", {Case::kLifecycle}, {}, "", false},
        {"violation", {Case::kExec, Case::kFile, Case::kNet, Case::kDns, Case::kEscape}, {}, "", false},
        {"file", {Case::kFile}, {}, "files", false},
        {"network", {Case::kNet}, {}, "network", false},
        {"fork", {Case::kFork}, {}, "exec", false},
        {"exit", {Case::kExit}, {}, "exec", false},
    };
    return *table;
}

const Category* FindCategory(absl::string_view name) {
    for (const Category& category : Table()) {
        if (category.name == name) return &category;
    }
    return nullptr;
}

const std::string& WordOf(const v1::Event& event) {
    static const std::string none;
    switch (event.payload_case()) {
        case Case::kExec:
            return event.exec().role();
        case Case::kFile:
            return event.file().op();
        case Case::kNet:
            return event.net().op();
        default:
            return none;
    }
}

bool IsRefused(const v1::Event& event) { return !event.verdict().empty() && event.verdict() != "allow"; }

bool Holds(const Source& source, Case payload, const std::string& word, bool refused) {
    if (source.category.empty()) return true;
    const Category& category = *FindCategory(source.category);
    if (std::find(category.payloads.begin(), category.payloads.end(), payload) == category.payloads.end())
        return false;
    if (source.category == "violation") return refused;
    if (category.words.empty()) return true;
    return std::find(category.words.begin(), category.words.end(), word) != category.words.end();
}

struct ClassTable {
    struct Words {
        size_t first = 0;  // place of the first class of the payload
        std::vector<std::string> words;
    };
    std::vector<EventClass> all;
    std::vector<Words> of_payload;  // by its number
};

// Each word of each payload twice: allowed, and refused.
const ClassTable& Classes() {
    static const auto* const table = [] {
        auto* out = new ClassTable;
        const auto* payloads = v1::Event::descriptor()->FindOneofByName("payload");
        for (int i = 0; i < payloads->field_count(); ++i) {
            const auto number = static_cast<size_t>(payloads->field(i)->number());
            const auto payload = static_cast<Case>(number);
            if (out->of_payload.size() <= number) out->of_payload.resize(number + 1);
            ClassTable::Words& of = out->of_payload[number];
            of.first = out->all.size();
            for (const Category& category : Table()) {
                if (std::find(category.payloads.begin(), category.payloads.end(), payload) == category.payloads.end())
                    continue;
                for (const std::string& word : category.words) {
                    if (std::find(of.words.begin(), of.words.end(), word) == of.words.end()) of.words.push_back(word);
                }
            }
            of.words.emplace_back();
            for (const std::string& word : of.words) {
                out->all.push_back({payload, word, false});
                out->all.push_back({payload, word, true});
            }
        }
        return out;
    }();
    return *table;
}

}  // namespace

std::vector<std::string> Categories() {
    std::vector<std::string> names;
    for (const Category& category : Table()) names.emplace_back(category.name);
    return names;
}

std::optional<Source> FindSource(absl::string_view product, absl::string_view category,
                                 absl::string_view service, std::string* why) {
    if (!service.empty()) {
        *why = absl::StrCat("service '", service, "' is a log that Stockade does not read; name a category");
        return std::nullopt;
    }
    if (!product.empty() && product != "linux" && product != "stockade") {
        *why = absl::StrCat("product '", product, "' has no events here",
                            policy::Suggest(product, {"linux", "stockade"}));
        return std::nullopt;
    }
    if (category.empty()) {
        if (product == "stockade") return Source{"stockade", ""};
        *why = absl::StrCat("a log source needs a category", policy::Suggest("", Categories()));
        return std::nullopt;
    }
    const Category* found = FindCategory(category);
    if (found == nullptr) {
        *why = absl::StrCat("category '", category, "' has no events here",
                            policy::Suggest(category, Categories()));
        return std::nullopt;
    }
    if (!found->sigma && product != "stockade") {
        *why = absl::StrCat("category '", category, "' is our own: write product: stockade");
        return std::nullopt;
    }
    return Source{std::string(product), std::string(category)};
}

std::string ToString(const Source& source) {
    if (source.category.empty()) return source.product;
    return source.product.empty() ? source.category : absl::StrCat(source.product, "/", source.category);
}

bool Covers(const Source& outer, const Source& inner) {
    const bool product = outer.product.empty() || outer.product == inner.product;
    return product && (outer.category.empty() || outer.category == inner.category);
}

std::vector<Case> PayloadsOf(const Source& source) {
    const Category* category = FindCategory(source.category);
    return category == nullptr ? std::vector<Case>() : category->payloads;
}

bool Belongs(const Source& source, const EventClass& events) {
    return Holds(source, events.payload, events.word, events.refused);
}

bool Belongs(const Source& source, const v1::Event& event) {
    return Holds(source, event.payload_case(), WordOf(event), IsRefused(event));
}

const std::vector<EventClass>& EventClasses() { return Classes().all; }

size_t ClassOf(const v1::Event& event) {
    const ClassTable& table = Classes();
    const auto payload = static_cast<size_t>(event.payload_case());
    if (payload == 0 || payload >= table.of_payload.size()) return table.all.size();
    const ClassTable::Words& words = table.of_payload[payload];
    size_t at = 0;
    // The last one is the empty one, for all others.
    for (const std::string& word = WordOf(event); at + 1 < words.words.size() && words.words[at] != word;) ++at;
    return words.first + 2 * at + (IsRefused(event) ? 1 : 0);
}

std::vector<std::string> RecordedBy(const Source& source) {
    const Category* category = FindCategory(source.category);
    if (category == nullptr || *category->section == '\0') return {};
    return {category->section};
}

}  // namespace stockade::detect
