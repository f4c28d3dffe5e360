// What a rule may name: the fields of event.proto by their Sigma names within a log source, by a few
// names of our own, and all of them by their path in the event ("exec.role", "sandbox.labels.team").
//
// Read from the descriptor, so that there is no second list of fields.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/model/event.pb.h"

namespace stockade::detect {

// One field: how to get at it. Owned by the table, for ever; compared by address.
struct Field {
    enum class Kind { kText, kNumber, kBool, kTime, kUnrecorded };

    size_t number = 0;   // from 0, without gaps: where its value is kept
    std::string path{};  // "process.ancestry.exe"; of a field that is never recorded its Sigma name
    Kind kind = Kind::kText;
    std::vector<const google::protobuf::FieldDescriptor*> steps{};
    // A list of arguments is one text, joined by blanks; of other lists each item is a value.
    bool joined = false;
    bool first_only = false;  // of ancestry: the parent
    std::string map_key{};    // of sandbox.labels
    std::string constant{};   // the same in each event; no steps
    bool zero_is_absent = false;
    bool empty_is_unknown = false;  // there is one, and few events have it
    bool port = false;
    bool user = false;  // uid 0 is "root" too
    // Fields beside it that say how far it can be relied on; null where there are none.
    const google::protobuf::FieldDescriptor* escaped = nullptr;
    const google::protobuf::FieldDescriptor* truncated = nullptr;
    const google::protobuf::FieldDescriptor* redacted = nullptr;  // beside what the whole event says
    const google::protobuf::FieldDescriptor* detail = nullptr;    // a PathDetail
};

// Where events come from, as `logsource` says it.
struct Source {
    std::string product;   // "linux", "stockade"; empty = any
    std::string category;  // "process_creation"; empty = every event
    bool operator==(const Source&) const = default;
};

// nullopt with a sentence in `why` for what has no events here.
std::optional<Source> FindSource(absl::string_view product, absl::string_view category,
                                 absl::string_view service, std::string* why);
std::string ToString(const Source& source);
// Whether `outer` speaks of every event of `inner`, for filters.
bool Covers(const Source& outer, const Source& inner);
// Payloads that can be events of the source; empty = all.
std::vector<v1::Event::PayloadCase> PayloadsOf(const Source& source);
bool Belongs(const Source& source, const v1::Event& event);

// Events that belong to the same sources, whatever else they say.
struct EventClass {
    v1::Event::PayloadCase payload = v1::Event::PAYLOAD_NOT_SET;
    std::string word{};  // of op or role; empty: one that no category names
    bool refused = false;
};
const std::vector<EventClass>& EventClasses();
// Its place in EventClasses(); their number for an event without a payload, which no source has.
size_t ClassOf(const v1::Event& event);
bool Belongs(const Source& source, const EventClass& events);
// Sections of a policy whose `record:` must be `all` for the source to have its events, also allowed ones.
std::vector<std::string> RecordedBy(const Source& source);
// All categories, of one product.
std::vector<std::string> Categories();

// Fills in what else the message says about the field.
void FindDetails(const google::protobuf::FieldDescriptor* leaf, Field* field);

// Null for an unknown name.
const Field* FindField(const Source& source, absl::string_view name);
// For "did you mean": Sigma names and our own of the source, without paths.
std::vector<std::string> FieldNames(const Source& source);
// Names that Sigma has for the source and no event of ours carries.
std::vector<std::string> UnrecordedNames(const Source& source);

}  // namespace stockade::detect
