// A small writer of JSON for results and `-o json`.
//
//   JsonObject o;  o.Add("id", id).Add("exit_code", 0).AddRaw("summary", text);  o.Done()
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stockade::cmd {

// Quoted; bytes that are no printable UTF-8 are escaped as events do it.
std::string JsonString(absl::string_view bytes);

class JsonObject {
  public:
    JsonObject& Add(absl::string_view key, absl::string_view text) { return AddRaw(key, JsonString(text)); }
    JsonObject& Add(absl::string_view key, const char* text) { return AddRaw(key, JsonString(text)); }
    JsonObject& Add(absl::string_view key, const std::string& text) { return AddRaw(key, JsonString(text)); }
    JsonObject& Add(absl::string_view key, bool value) { return AddRaw(key, value ? "true" : "false"); }
    JsonObject& Add(absl::string_view key, int64_t value) { return AddRaw(key, std::to_string(value)); }
    JsonObject& Add(absl::string_view key, int value) { return AddRaw(key, std::to_string(value)); }
    JsonObject& Add(absl::string_view key, uint32_t value) { return AddRaw(key, std::to_string(value)); }
    JsonObject& Add(absl::string_view key, uint64_t value) { return AddRaw(key, std::to_string(value)); }
    // `json` is JSON already.
    JsonObject& AddRaw(absl::string_view key, absl::string_view json);
    std::string Done() const { return text_ + "}"; }

  private:
    std::string text_ = "{";
};

std::string JsonArray(const std::vector<std::string>& values);  // of JSON values

}  // namespace stockade::cmd
