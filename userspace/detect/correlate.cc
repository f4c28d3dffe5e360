#include "userspace/detect/correlate.h"

#include <algorithm>
#include <cmath>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stockade::detect {
namespace {

using Type = Correlation::Type;

// Further from 1970 than this no nanosecond count goes; a replayed file may say anything.
constexpr int64_t kMaxSeconds = 9'000'000'000;

int64_t TimeOf(const v1::Event& event) {
    return std::clamp(event.time().seconds(), -kMaxSeconds, kMaxSeconds) * 1'000'000'000 +
           event.time().nanos();
}

// One text for a value, or none. Lists have their items in order.
bool OneText(const FieldValue& value, std::string* out) {
    if (value.texts.empty()) return false;
    std::vector<absl::string_view> texts;
    for (const Text& text : value.texts) texts.push_back(text.raw);
    *out = absl::StrJoin(texts, " ");
    return true;
}

}  // namespace

struct Correlator::Entry {
    int64_t time_ns = 0;
    uint64_t value = 0;  // of value_count: a hash
    double number = 0;
    uint32_t base = 0;  // which of the correlation's rules
};

struct Correlator::Group {
    std::deque<Entry> entries;  // by time
    // Kept along: a flood must not make each event cost as much as all before it.
    absl::flat_hash_map<uint64_t, uint32_t> values, bases;
    long double sum = 0;
    std::string shown;
    std::deque<std::pair<int64_t, std::string>> evidence;
    std::list<std::string>::iterator age;
};

struct Correlator::State {
    const Rule* rule = nullptr;
    std::vector<size_t> bases;
    // Fields by place of the base.
    std::vector<std::vector<const Field*>> group_fields, value_fields;
    absl::flat_hash_map<std::string, std::unique_ptr<Group>> groups;
    std::list<std::string> ages;  // longest untouched first
};

Correlator::~Correlator() = default;

Correlator::Correlator(const std::vector<Rule>& rules, const CorrelatorOptions& options)
    : rules_(rules), options_(options), users_(rules.size()), silent_(rules.size()), states_(rules.size()) {
    std::map<std::string, size_t> by_ref;
    for (size_t i = 0; i < rules.size(); ++i) {
        for (const std::string& key : {rules[i].id, rules[i].name}) {
            if (!key.empty()) by_ref.emplace(key, i);
        }
    }
    // Fields of a chained correlation are those of its first rule's events: linking saw that all have them.
    const auto source_of = [&](size_t place) {
        while (rules[place].correlation) place = by_ref.at(rules[place].correlation->rules[0].text);
        return rules[place].source;
    };
    for (size_t i = 0; i < rules.size(); ++i) {
        if (!rules[i].correlation) continue;
        const Correlation& correlation = *rules[i].correlation;
        auto state = std::make_unique<State>();
        state->rule = &rules[i];
        for (const policy::Entry& ref : correlation.rules) {
            const size_t base = by_ref.at(ref.text);
            const Source source = source_of(base);
            users_[base].push_back(i);
            silent_[base] = silent_[base] || !correlation.generate;
            state->bases.push_back(base);
            std::vector<const Field*> group, values;
            for (const std::string& name : correlation.group_by) {
                const auto alias = correlation.aliases.find(name);
                group.push_back(FindField(
                    source, alias == correlation.aliases.end() ? name : alias->second.at(ref.text).text));
            }
            for (const std::string& name : correlation.fields) values.push_back(FindField(source, name));
            state->group_fields.push_back(std::move(group));
            state->value_fields.push_back(std::move(values));
        }
        states_[i] = std::move(state);
    }
}

size_t Correlator::groups() const {
    size_t count = 0;
    for (const auto& state : states_) count += state == nullptr ? 0 : state->groups.size();
    return count;
}

void Correlator::Adopt(Correlator& before) {
    std::map<std::string, State*> by_hash;
    for (const auto& state : before.states_) {
        if (state == nullptr) continue;
        // A change of a rule it rests on is a change of the correlation.
        std::string hash = state->rule->hash;
        for (size_t base : state->bases)
            absl::StrAppend(&hash, before.rules_[base].hash, before.rules_[base].filters.size());
        by_hash[hash] = state.get();
    }
    for (const auto& state : states_) {
        if (state == nullptr) continue;
        std::string hash = state->rule->hash;
        for (size_t base : state->bases)
            absl::StrAppend(&hash, rules_[base].hash, rules_[base].filters.size());
        const auto it = by_hash.find(hash);
        if (it == by_hash.end()) continue;
        std::swap(state->groups, it->second->groups);
        std::swap(state->ages, it->second->ages);  // iterators stay with their nodes
        for (const auto& [key, group] : state->groups) {
            events_ += group->entries.size();
            before.events_ -= group->entries.size();
        }
    }
}

void Correlator::OnMatch(size_t rule, EventView& view, std::vector<CorrelationHit>* hits) {
    for (size_t correlation : users_[rule]) Feed(correlation, rule, view, hits);
}

bool Correlator::KeyOf(const State& state, size_t base, EventView& view, std::string* key,
                       std::string* shown) {
    if (state.group_fields[base].empty()) {
        const v1::Sandbox& sandbox = view.event().sandbox();
        *key = *shown = sandbox.session().empty() ? sandbox.id() : sandbox.session();
        return true;
    }
    std::vector<std::string> parts;
    for (const Field* field : state.group_fields[base]) {
        const FieldValue& value = view.Get(*field);
        if (value.HasHole()) return ++counters_.undecidable, false;
        std::string text;
        if (!OneText(value, &text)) return ++counters_.ungrouped, false;
        // With its length: texts may hold whatever stands between them.
        absl::StrAppend(key, text.size(), ":", text);
        parts.push_back(std::move(text));
    }
    *shown = absl::StrJoin(parts, ",");
    return true;
}

bool Correlator::ValueOf(const State& state, size_t base, EventView& view, Entry* entry) {
    size_t hash = 0;
    for (const Field* field : state.value_fields[base]) {
        const FieldValue& value = view.Get(*field);
        if (value.HasHole()) return ++counters_.undecidable, false;
        std::string text;
        if (!OneText(value, &text)) return ++counters_.ungrouped, false;
        hash = absl::HashOf(hash, text);
        if (state.rule->correlation->type == Type::kValueCount) continue;
        char* end = nullptr;
        entry->number =
            value.numbers.empty() ? std::strtod(text.c_str(), &end) : static_cast<double>(value.numbers[0]);
        if (end != nullptr && (end == text.c_str() || *end != '\0' || !std::isfinite(entry->number)))
            return ++counters_.ungrouped, false;
    }
    entry->value = hash;
    return true;
}

void Correlator::Feed(size_t correlation, size_t base_rule, EventView& view,
                      std::vector<CorrelationHit>* hits) {
    State& state = *states_[correlation];
    const size_t base = static_cast<size_t>(std::find(state.bases.begin(), state.bases.end(), base_rule) -
                                            state.bases.begin());
    std::string key, shown;
    Entry entry{.time_ns = TimeOf(view.event()), .base = static_cast<uint32_t>(base)};
    if (!KeyOf(state, base, view, &key, &shown) || !ValueOf(state, base, view, &entry)) return;
    Group& group = GroupOf(state, key);
    if (!Insert(state, group, entry)) return;
    group.evidence.emplace_back(entry.time_ns, view.event().id());
    if (group.evidence.size() > kMaxEvidence) group.evidence.pop_front();
    uint64_t count = 0;
    if (!Fires(state, group, &count)) return;
    CorrelationHit hit{.rule = correlation, .group = shown, .count = count};
    const int64_t oldest = group.entries.front().time_ns;
    for (const auto& [time, id] : group.evidence) {
        if (time >= oldest && !id.empty()) hit.evidence.push_back(id);
    }
    events_ -= group.entries.size();
    state.ages.erase(group.age);
    state.groups.erase(key);
    hits->push_back(std::move(hit));
    OnMatch(correlation, view, hits);
}

Correlator::Group& Correlator::GroupOf(State& state, const std::string& key) {
    const auto it = state.groups.find(key);
    if (it != state.groups.end()) {
        state.ages.splice(state.ages.end(), state.ages, it->second->age);
        return *it->second;
    }
    if (state.groups.size() >= options_.max_groups) EvictGroup(state);
    auto group = std::make_unique<Group>();
    group->age = state.ages.insert(state.ages.end(), key);
    return *(state.groups[key] = std::move(group));
}

void Correlator::EvictGroup(State& state) {
    const auto it = state.groups.find(state.ages.front());
    events_ -= it->second->entries.size();
    state.groups.erase(it);
    state.ages.pop_front();
    ++counters_.evicted_groups;
}

bool Correlator::Insert(State& state, Group& group, const Entry& entry) {
    const int64_t span = state.rule->correlation->timespan_ns;
    if (!group.entries.empty() && entry.time_ns < group.entries.back().time_ns - span)
        return ++counters_.late, false;
    auto at = group.entries.end();
    while (at != group.entries.begin() && std::prev(at)->time_ns > entry.time_ns) --at;
    group.entries.insert(at, entry);
    ++group.values[entry.value];
    ++group.bases[entry.base];
    group.sum += static_cast<long double>(entry.number);
    ++events_;
    const int64_t oldest = group.entries.back().time_ns - span;
    while (group.entries.front().time_ns < oldest) DropOldest(group);
    if (events_ > options_.max_events && state.groups.size() > 1) {
        EvictGroup(state);
    } else if (events_ > options_.max_events || group.entries.size() > kMaxGroupEvents) {
        DropOldest(group);
        ++counters_.evicted_events;
    }
    return true;
}

void Correlator::DropOldest(Group& group) {
    const Entry& entry = group.entries.front();
    if (--group.values[entry.value] == 0) group.values.erase(entry.value);
    if (--group.bases[entry.base] == 0) group.bases.erase(entry.base);
    // Sums of what came and went drift; an empty group is exact again.
    group.sum = group.entries.size() == 1 ? 0 : group.sum - static_cast<long double>(entry.number);
    group.entries.pop_front();
    --events_;
}

bool Correlator::Fires(const State& state, const Group& group, uint64_t* count) const {
    const Correlation& correlation = *state.rule->correlation;
    long double measure = 0;
    const auto n = static_cast<long double>(group.entries.size());
    switch (correlation.type) {
        case Type::kEventCount:
            measure = n;
            break;
        case Type::kValueCount:
            measure = static_cast<long double>(group.values.size());
            break;
        case Type::kTemporal:
            measure = static_cast<long double>(group.bases.size());
            break;
        case Type::kTemporalOrdered: {
            uint32_t next = 0;
            for (const Entry& entry : group.entries) next += entry.base == next ? 1 : 0;
            measure = next;
            break;
        }
        case Type::kValueSum:
        case Type::kValueAvg:
            measure = correlation.type == Type::kValueAvg ? group.sum / n : group.sum;
            break;
        case Type::kValuePercentile: {
            std::vector<double> numbers;
            for (const Entry& entry : group.entries) numbers.push_back(entry.number);
            // Nearest rank.
            const auto rank = static_cast<size_t>(std::ceil(correlation.percentile / 100 * n)) - 1;
            std::nth_element(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(rank),
                             numbers.end());
            measure = static_cast<long double>(numbers[rank]);
            break;
        }
    }
    *count = measure < 0 ? 0 : static_cast<uint64_t>(measure);
    if (correlation.conditions.empty()) return measure == static_cast<long double>(state.bases.size());
    for (const auto& [compare, number] : correlation.conditions) {
        if (!Holds(compare, measure, number)) return false;
    }
    return true;
}

}  // namespace stockade::detect
