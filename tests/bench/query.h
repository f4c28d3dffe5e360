// Queries as a resolver gets them, for kDns operations and for the meter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stockade::bench {

// All names of the bench lie in this zone, which is on no list.
inline constexpr char kQueryZone[] = "bench-zone.test";

// A question for an A record. Eight digits of its name can be changed without making it anew.
struct Query {
    std::string name;
    std::string message = {};
    std::vector<size_t> digits = {};  // where in the message; empty for a fixed name

    explicit Query(std::string of, std::vector<size_t> digits_of_name = {});
    void Renew(uint32_t number);
};

std::vector<Query> UsualQueries();  // 64 of them
Query NewQuery();
// 96 characters below the zone, in labels of one: the most that a zone without a grant lets pass.
Query DeepestQuery();
// 253 characters, in 127 labels: such a name is refused for its length, and passes under `mode: observe`.
Query LongestQuery();

}  // namespace stockade::bench
