#include "userspace/decode/redact.h"

#include <google/protobuf/timestamp.pb.h>
#include <re2/re2.h>
#include <re2/set.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/decode/redact_prefilter.h"
#include "userspace/model/options.pb.h"

namespace stockade::decode {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// For one pattern of the configuration: thousands of states, and no x{1000}{1000}.
constexpr int64_t kPatternMemory = 1 << 20;

// Beside the patterns: the value is the next argument.
constexpr int kArgument = -1;
const std::string& kArgumentName = *new std::string("argument");
constexpr char kNextIsSecret[] = "--?(?:[a-z0-9]+[-_])*(?:pw|pwd|" SK_REDACT_NAME ")(?:[-_][a-z0-9]+)*";
// Options whose value is a secret with these programs only: the file name, then the option alone.
constexpr struct {
    const char* program;
    const char* option;
    bool after_colon;  // user:secret
} kProgramOptions[] = {
    {"curl", "-u", true},        {"curl", "--user", true}, {"curl", "--proxy-user", true},
    {"curl", "-U", true},        {"sshpass", "-p", false}, {"mysql", "-p", false},
    {"mysqldump", "-p", false},  {"mariadb", "-p", false}, {"redis-cli", "-a", false},
    {"ldapsearch", "-w", false},
};

// Latin-1: these are bytes, and invalid UTF-8 must not end the search.
RE2::Options MakeOptions(int64_t memory) {
    RE2::Options options(RE2::Latin1);
    options.set_log_errors(false);
    options.set_case_sensitive(false);
    options.set_max_mem(memory);
    return options;
}

v1::Secrecy SecrecyOf(const FieldDescriptor& field) {
    return field.options().GetExtension(v1::field).secrecy();
}

absl::string_view FileName(absl::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

struct Redactor::Plan {
    struct Field {
        const FieldDescriptor* descriptor;
        const Plan* plan;  // of a message field; null for a string
    };
    std::vector<Field> fields;
};

struct Redactor::Compiled {
    struct One {
        std::string name;
        std::unique_ptr<RE2> find;
        int group = 0;  // what is replaced
        std::atomic<uint64_t> count{0};
    };
    explicit Compiled(int64_t set_memory) : set(MakeOptions(set_memory), RE2::UNANCHORED) {}

    RedactPrefilter may;
    RE2::Set set;
    std::vector<std::unique_ptr<One>> patterns;
    bool look_at_next = false;
    RE2 next{kNextIsSecret, MakeOptions(kPatternMemory)};
    std::atomic<uint64_t> arguments{0};
};

Redactor::Redactor(int64_t set_memory) : compiled_(std::make_unique<Compiled>(set_memory)) {}
Redactor::~Redactor() = default;

StatusOr<std::unique_ptr<const Redactor>> Redactor::Create(const Options& options) {
    std::unique_ptr<Redactor> redactor(new Redactor(options.set_memory));
    std::set<std::string> without(options.without.begin(), options.without.end());
    std::set<std::string> known{kArgumentName};
    redactor->compiled_->look_at_next = options.defaults && without.count(kArgumentName) == 0;
    for (const RedactPattern& pattern : DefaultPatterns()) {
        known.insert(pattern.name);
        if (options.defaults && without.count(pattern.name) == 0) SK_RETURN_IF_ERROR(redactor->Add(pattern));
    }
    for (const std::string& name : without) {
        if (known.count(name) == 0)
            return absl::InvalidArgumentError(absl::StrCat("no redaction pattern \"", name, "\""));
    }
    for (const RedactPattern& pattern : options.more) SK_RETURN_IF_ERROR(redactor->Add(pattern));
    if (!redactor->compiled_->set.Compile()) {
        return absl::InvalidArgumentError("redaction patterns: together they need too much memory");
    }
    redactor->compiled_->may.Compile();
    (void)redactor->PlanOf(v1::Event::descriptor());
    return std::unique_ptr<const Redactor>(std::move(redactor));
}

const Redactor& Redactor::Default() {
    // The patterns are compiled in, so that they are right is what the unit test says.
    static const Redactor* const redactor = Create({}).value().release();
    return *redactor;
}

Status Redactor::Add(const RedactPattern& pattern) {
    const auto fail = [&](absl::string_view why) {
        return absl::InvalidArgumentError(absl::StrCat("redaction pattern \"", pattern.name, "\": ", why));
    };
    if (pattern.name.empty()) return fail("it has no name");
    if (compiled_->patterns.size() == kMaxPatterns)
        return fail(absl::StrCat("more than ", kMaxPatterns, " patterns"));
    auto one = std::make_unique<Compiled::One>();
    one->name = pattern.name;
    one->find = std::make_unique<RE2>(pattern.find, MakeOptions(kPatternMemory));
    if (!one->find->ok()) return fail(one->find->error());
    if (RE2::PartialMatch("", *one->find)) return fail("it matches the empty text");
    const auto& groups = one->find->NamedCapturingGroups();
    if (const auto found = groups.find("secret"); found != groups.end()) one->group = found->second;
    if (compiled_->set.Add(pattern.find, nullptr) < 0) return fail("RE2 does not take it into a set");
    compiled_->may.Add(pattern.find, MakeOptions(kPatternMemory));
    compiled_->patterns.push_back(std::move(one));
    return absl::OkStatus();
}

// Null for a type without any string of a sandbox, so that none of its messages is walked.
const Redactor::Plan* Redactor::PlanOf(const Descriptor* type) {
    if (type == google::protobuf::Timestamp::descriptor()) return nullptr;
    auto [slot, fresh] = plans_.try_emplace(type);
    if (!fresh) return slot->second.get();
    auto plan = std::make_unique<Plan>();
    for (int i = 0; i < type->field_count(); ++i) {
        const FieldDescriptor* field = type->field(i);
        if (field->message_type()) {
            if (field->is_map()) continue;
            if (const Plan* inner = PlanOf(field->message_type())) plan->fields.push_back({field, inner});
        } else if (SecrecyOf(*field) != v1::PLAIN && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
            plan->fields.push_back({field, nullptr});
        }
    }
    if (plan->fields.empty()) return nullptr;
    return (plans_[type] = std::move(plan)).get();
}

void Redactor::Hits::KeepOriginal() const {
    if (original != nullptr && *original == nullptr) *original = std::make_unique<v1::Event>(*event);
}

int Redactor::Redact(v1::Event* event, std::unique_ptr<v1::Event>* original) const {
    const auto root = plans_.find(v1::Event::descriptor());
    Hits hits{.counts = {}, .event = event, .original = original};
    const uint32_t before = static_cast<uint32_t>(event->exec().argv_redacted());
    const int changed = Walk(event, *root->second, &hits);
    if (hits.counts.empty()) return changed;
    if (event->has_exec()) {
        // The walk counted all strings; this field is about arguments.
        uint32_t arguments = 0;
        for (const std::string& argument : event->exec().argv())
            arguments += absl::StrContains(argument, kReplacement);
        event->mutable_exec()->set_argv_redacted(std::max(before, arguments));
    }
    for (const auto& [index, count] : hits.counts) {
        const std::string& name =
            index == kArgument ? kArgumentName : compiled_->patterns[static_cast<size_t>(index)]->name;
        v1::Redaction* row = nullptr;
        for (v1::Redaction& other : *event->mutable_redactions()) {
            if (other.pattern() == name) row = &other;
        }
        if (!row) (row = event->add_redactions())->set_pattern(name);
        row->set_count(row->count() + count);
    }
    return changed;
}

bool Redactor::RedactText(std::string* text) const {
    Hits hits;
    return Text(text, &hits);
}

int Redactor::Walk(Message* message, const Plan& plan, Hits* hits) const {
    const Reflection& r = *message->GetReflection();
    int changed = 0;
    for (const auto& [field, inner] : plan.fields) {
        if (field->is_repeated()) {
            if (inner) {
                for (int i = 0; i < r.FieldSize(*message, field); ++i)
                    changed += Walk(r.MutableRepeatedMessage(message, field, i), *inner, hits);
            } else {
                changed += Arguments(message, field, hits);
            }
        } else if (inner) {
            if (r.HasField(*message, field)) changed += Walk(r.MutableMessage(message, field), *inner, hits);
        } else {
            std::string scratch;
            const std::string& text = r.GetStringReference(*message, field, &scratch);
            if (!compiled_->may.MayMatch(text)) continue;
            std::string copy = text;
            if (!Text(&copy, hits)) continue;
            hits->KeepOriginal();
            r.SetString(message, field, std::move(copy));
            ++changed;
        }
    }
    return changed;
}

int Redactor::Arguments(Message* message, const FieldDescriptor* field, Hits* hits) const {
    const Reflection& r = *message->GetReflection();
    const bool list = SecrecyOf(*field) == v1::SECRET_BEARING;
    std::string program;
    int changed = 0;
    enum { kNo, kWhole, kAfterColon } next = kNo;
    for (int i = 0; i < r.FieldSize(*message, field); ++i) {
        std::string scratch;
        const std::string& there = r.GetRepeatedStringReference(*message, field, i, &scratch);
        if (list && i == 0) program = std::string(FileName(there));
        // Neither a secret nor the option before one.
        if (next == kNo && (there.empty() || there[0] != '-' || !list) && !compiled_->may.MayMatch(there)) continue;
        std::string text = there;
        bool hit = false;
        // An option is not a value: `--password --verbose` prompts for it.
        if (next != kNo && !text.empty() && text[0] != '-') {
            const size_t colon = next == kAfterColon ? text.find(':') : text.npos;
            std::string secret =
                colon == text.npos ? kReplacement : absl::StrCat(text.substr(0, colon + 1), kReplacement);
            hit = secret != text;
            text = std::move(secret);
            if (hit) ++hits->counts[kArgument];
            if (hit) ++compiled_->arguments;
        } else {
            hit = Text(&text, hits);
        }
        next = kNo;
        if (list && compiled_->look_at_next && i > 0 && !text.empty() && text[0] == '-') {
            if (RE2::FullMatch(text, compiled_->next)) next = kWhole;
            for (const auto& row : kProgramOptions) {
                if (program == row.program && text == row.option)
                    next = row.after_colon ? kAfterColon : kWhole;
            }
        }
        if (!hit) continue;
        hits->KeepOriginal();
        r.SetRepeatedString(message, field, i, std::move(text));
        ++changed;
    }
    return changed;
}

bool Redactor::Text(std::string* text, Hits* hits) const {
    if (!compiled_->may.MayMatch(*text)) return false;
    std::vector<int> found;
    RE2::Set::ErrorInfo error{};
    if (!compiled_->set.Match(*text, &found, &error)) {
        if (error.kind == RE2::Set::kNoError) return false;
        // Not having been able to look must not mean that nothing was there.
        ++slow_;
        found.resize(compiled_->patterns.size());
        for (size_t i = 0; i < found.size(); ++i) found[i] = static_cast<int>(i);
    }
    std::sort(found.begin(), found.end());
    bool changed = false;
    for (int pattern : found) changed |= Replace(pattern, text, hits);
    return changed;
}

// What is redacted already stays, so that an event may be redacted twice.
bool Redactor::Replace(int pattern, std::string* text, Hits* hits) const {
    Compiled::One& one = *compiled_->patterns[static_cast<size_t>(pattern)];
    std::vector<re2::StringPiece> groups(static_cast<size_t>(one.group) + 1);
    std::string out;
    size_t copied = 0;
    uint32_t count = 0;
    for (size_t at = 0;
         at <= text->size() && one.find->Match(*text, at, text->size(), RE2::UNANCHORED, groups.data(),
                                               static_cast<int>(groups.size()));) {
        const re2::StringPiece secret = groups.back();
        const auto end = static_cast<size_t>(secret.data() + secret.size() - text->data());
        const auto begin = end - secret.size();
        at = std::max(end, at + 1);
        if (secret.empty() || secret == kReplacement) continue;
        out.append(*text, copied, begin - copied).append(kReplacement);
        copied = end;
        ++count;
    }
    if (count == 0) return false;
    out.append(*text, copied, text->npos);
    *text = std::move(out);
    one.count += count;
    hits->counts[pattern] += count;
    return true;
}

std::map<std::string, uint64_t> Redactor::counts() const {
    std::map<std::string, uint64_t> counts;
    counts[kArgumentName] = compiled_->arguments;
    for (const auto& one : compiled_->patterns) counts[one->name] += one->count;
    return counts;
}

}  // namespace stockade::decode
