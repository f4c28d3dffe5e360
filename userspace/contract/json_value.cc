#include "userspace/contract/json_value.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "userspace/policy/reader.h"

namespace stockade::contract {
namespace {

// Builds the value while it is read, so that no bound is passed before it is seen.
class Builder : public nlohmann::json_sax<JsonValue> {
  public:
    explicit Builder(const JsonBounds& bounds) : bounds_(bounds) {}

    bool null() override { return Add(nullptr); }
    bool boolean(bool value) override { return Add(value); }
    bool number_integer(number_integer_t value) override { return Add(value); }
    bool number_unsigned(number_unsigned_t value) override { return Add(value); }
    bool number_float(number_float_t value, const string_t& /*text*/) override { return Add(value); }
    bool binary(binary_t& /*value*/) override { return Fail(absl::InvalidArgumentError("not JSON: bytes")); }
    bool string(string_t& value) override { return CheckText(value) && Add(std::move(value)); }
    bool start_object(size_t /*elements*/) override { return Open(JsonValue::object()); }
    bool start_array(size_t /*elements*/) override { return Open(JsonValue::array()); }
    bool end_object() override { return Close(); }
    bool end_array() override { return Close(); }
    bool key(string_t& value) override {
        if (!CheckText(value)) return false;
        if (open_.back()->contains(value)) {
            return Fail(absl::InvalidArgumentError(
                absl::StrCat("duplicate key '", policy::Reader::Printable(value), "'")));
        }
        key_ = std::move(value);
        return true;
    }
    bool parse_error(size_t position, const std::string& /*token*/,
                     const nlohmann::detail::exception& error) override {
        if (error.id == 406) return Fail(absl::InvalidArgumentError("a number is too large"));
        return Fail(absl::InvalidArgumentError(absl::StrCat("not JSON at byte ", position)));
    }

    const Status& status() const { return status_; }
    JsonValue Take() { return std::move(root_); }

  private:
    bool Fail(Status status) {
        status_ = std::move(status);
        return false;
    }
    bool CheckText(const string_t& text) {
        if (text.find('\0') == string_t::npos) return true;
        return Fail(absl::InvalidArgumentError("a zero character in a text"));
    }
    JsonValue* Place(JsonValue value) {
        if (open_.empty()) return &(root_ = std::move(value));
        JsonValue& parent = *open_.back();
        if (parent.is_array()) {
            parent.push_back(std::move(value));
            return &parent.back();
        }
        return &(parent[key_] = std::move(value));
    }
    bool Add(JsonValue value) {
        if (++values_ > bounds_.max_values) {
            return Fail(absl::ResourceExhaustedError(absl::StrCat("over ", bounds_.max_values, " values")));
        }
        (void)Place(std::move(value));
        return true;
    }
    bool Open(JsonValue value) {
        if (open_.size() >= bounds_.max_depth) {
            return Fail(
                absl::ResourceExhaustedError(absl::StrCat("nested deeper than ", bounds_.max_depth)));
        }
        if (++values_ > bounds_.max_values) {
            return Fail(absl::ResourceExhaustedError(absl::StrCat("over ", bounds_.max_values, " values")));
        }
        // A list that grows moves its members, but never while one of them is open.
        open_.push_back(Place(std::move(value)));
        return true;
    }
    bool Close() {
        open_.pop_back();
        return true;
    }

    const JsonBounds bounds_;
    JsonValue root_;
    std::vector<JsonValue*> open_;
    std::string key_;
    size_t values_ = 0;
    Status status_ = absl::InvalidArgumentError("not JSON");
};

// What JSON lets stand in a text and YAML takes for a line's end, a mark of the encoding, or an error; and how both write it.
const std::vector<std::pair<std::string, std::string>>& YamlOnly() {
    static const auto* const table = [] {
        auto* rows = new std::vector<std::pair<std::string, std::string>>{
            {"\x7f", "\\u007f"}, {"\u2028", "\\u2028"}, {"\u2029", "\\u2029"}, {"\ufeff", "\\ufeff"}};
        for (int code = 0x80; code < 0xa0; ++code) rows->push_back({{'\xc2', static_cast<char>(code)}, absl::StrCat("\\u00", absl::Hex(code))});
        return rows;
    }();
    return *table;
}

}  // namespace

std::string QuotedText(absl::string_view text) {
    return absl::StrReplaceAll(JsonValue(std::string(text)).dump(-1, ' ', false, JsonValue::error_handler_t::replace), YamlOnly());
}

bool CanBeQuoted(absl::string_view text) {
    const StatusOr<JsonValue> back = ParseJsonValue(QuotedText(text), {.max_bytes = SIZE_MAX});
    return back.ok() && back->get<std::string>() == text;
}

StatusOr<JsonValue> ParseJsonValue(absl::string_view text, const JsonBounds& bounds) {
    if (text.size() > bounds.max_bytes) {
        return absl::ResourceExhaustedError(absl::StrCat("over ", bounds.max_bytes, " bytes"));
    }
    Builder builder(bounds);
    if (JsonValue::sax_parse(text.begin(), text.end(), &builder)) return builder.Take();
    return builder.status();
}

}  // namespace stockade::contract
