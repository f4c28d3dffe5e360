// A JSON object under construction: members by dotted path, in the order in which they came first.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace stockade::exporters {

class JsonTree {
  public:
    // `json` is a value as text. What is at the path already is replaced; objects on the way are made.
    void Set(absl::string_view path, std::string json);
    void SetString(absl::string_view path, absl::string_view text);
    void SetNumber(absl::string_view path, int64_t number);
    bool Has(absl::string_view path) const { return Find(path) != nullptr; }
    // As text; "" where there is none.
    std::string Get(absl::string_view path) const;
    void Append(std::string* out) const;

  private:
    const JsonTree* Find(absl::string_view path) const;

    std::string value_;  // of a leaf
    std::vector<std::pair<std::string, std::unique_ptr<JsonTree>>> members_;
};

}  // namespace stockade::exporters
