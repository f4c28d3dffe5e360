// A serialised event, and those of its fields that whoever passes it on must know, read without a message being made.
//
//   const auto event = EventBytes::Of(record.payload);
//   if (event && event->kernel_seq != 0) ...
//
// Borrowed: valid as long as the bytes are.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"
#include "userspace/model/event.pb.h"

namespace stockade::model {

struct EventBytes {
    // Nullopt for what is no event. Of an event that holds, deeper down, what cannot be read, only Parse may tell.
    static std::optional<EventBytes> Of(absl::string_view bytes);
    // kInvalidArgument: another version wrote it, or it is none. Clears what was there.
    Status Parse(v1::Event* event) const;

    absl::string_view bytes = "";
    absl::string_view id = "", node = "", kind = "", verdict = "", chain = "";
    absl::string_view time = "";  // serialised Timestamp
    bool has_time = false;
    absl::string_view sandbox = "", session = "", trace = "";  // the sandbox's id and labels
    uint64_t boot_ns = 0, kernel_seq = 0, export_seq = 0;
    v1::Event::PayloadCase payload = v1::Event::PAYLOAD_NOT_SET;
    bool by_person = false;  // an action that has an actor_uid
};

}  // namespace stockade::model
