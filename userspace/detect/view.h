// An event as rules see it: values of the fields they name, each read and normalised once.
//
//   EventView view(event);
//   const FieldValue& v = view.Get(*field);
//   view.Reset(next);   // the same memory for the next event
//
// Keeps a pointer to the event. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

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
    // Keeps the memory of its texts for the next ones.
    void Clear();
    Text& AddText();

  private:
    std::vector<Text> spare_{};
};

class EventView {
  public:
    explicit EventView(const v1::Event& event) : event_(&event) {}
    void Reset(const v1::Event& event) {
        event_ = &event;
        ++stamp_;
    }

    const v1::Event& event() const { return *event_; }
    const FieldValue& Get(const Field& field);
    // Every text of the event, for keywords. Fixed words and numbers are none.
    const FieldValue& Keywords();

  private:
    struct Slot {
        uint64_t stamp = 0;  // of the event it was read from
        FieldValue value;
    };

    const v1::Event* event_;
    uint64_t stamp_ = 1;
    std::vector<std::unique_ptr<Slot>> slots_;  // by the field's number
    Slot keywords_;
};

// Reads one field, without a cache.
void ReadField(const v1::Event& event, const Field& field, FieldValue* value);

}  // namespace stockade::detect
