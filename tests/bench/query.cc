#include "tests/bench/query.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stockade::bench {
namespace {

constexpr char kHex[] = "0123456789abcdef";

// "0.0.0. ... 0", `labels` of them; the first eight can be changed.
Query Deep(int labels, const std::string& zone) {
    std::string name;
    for (int i = 0; i < labels; i++) absl::StrAppend(&name, "0.");
    return Query(name + zone, {0, 2, 4, 6, 8, 10, 12, 14});
}

}  // namespace

Query::Query(std::string of, std::vector<size_t> digits_of_name) : name(std::move(of)) {
    message = std::string("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", 12);
    // A name on the wire is one byte ahead of itself as text: a length stands where the dot before was.
    for (const size_t at : digits_of_name) digits.push_back(message.size() + 1 + at);
    for (const absl::string_view label : absl::StrSplit(name, '.')) {
        message.push_back(static_cast<char>(label.size()));
        message.append(label.data(), label.size());
    }
    message.append(std::string("\0\0\1\0\1", 5));
}

void Query::Renew(uint32_t number) {
    for (size_t i = 0; i < digits.size(); i++) message[digits[i]] = kHex[(number >> 4 * i) & 0xf];
}

std::vector<Query> UsualQueries() {
    constexpr std::array kWords = {"www", "api", "cdn", "static-assets", "files", "login", "img", "registry"};
    constexpr std::array kRegions = {"eu-west-1", "us-east-1", "eu", "us", "a", "b", "one", "two"};
    std::vector<Query> queries;
    for (const char* word : kWords) {
        for (const char* region : kRegions)
            queries.emplace_back(absl::StrCat(word, ".", region, ".", kQueryZone));
    }
    return queries;
}

Query NewQuery() { return Query(absl::StrCat("n00000000.", kQueryZone), {1, 2, 3, 4, 5, 6, 7, 8}); }

Query DeepestQuery() { return Deep(48, kQueryZone); }

Query LongestQuery() { return Deep(125, "0.0"); }

}  // namespace stockade::bench
