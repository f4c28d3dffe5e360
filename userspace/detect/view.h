// An event as rules see it: values of the fields they name, each read and normalised once.
//
//   EventView view(event);
//   const FieldValue& v = view.Get(*field);
//
// Keeps a pointer to the event. One thread.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/detect/fields.h"

namespace stockade::detect {

struct Text {
    std::string raw;     // valid UTF-8 with holes
    std::string folded;  // the same, case folded
    bool hole = false;
};

struct FieldValue {
    enum class State { kAbsent, kPresent, kUnknown };
    State state = State::kAbsent;
    std::vector<Text> texts;  // numbers and times as text too
    std::vector<long double> numbers;

    bool HasHole() const;
};

class EventView {
  public:
    explicit EventView(const v1::Event& event) : event_(&event) {}

    const v1::Event& event() const { return *event_; }
    const FieldValue& Get(const Field& field);
    // Every text of the event, for keywords. Fixed words and numbers are none.
    const FieldValue& Keywords();

  private:
    const v1::Event* event_;
    absl::flat_hash_map<const Field*, std::unique_ptr<FieldValue>> values_;
    std::unique_ptr<FieldValue> keywords_;
};

// Reads one field, without a cache.
FieldValue ReadField(const v1::Event& event, const Field& field);

}  // namespace stockade::detect
