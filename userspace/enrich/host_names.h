// Which name led a sandbox to an address: what its own DNS answers said.
//
//   HostNames names({});
//   names.Learn("sbx_1", "192.0.2.1", "pypi.org", BootNow());   // before the sandbox has the answer
//   names.Enrich(&event, &original);                 // net.host_name of a connection to it
//   names.Forget("sbx_1");
//
// The name that was asked for, not an alias on the way; of several that lead to one address the last before the
// connection: events come some milliseconds late, and answers at once. No other sandbox's answers count. Not synchronised. Names are the sandbox's own bytes: who calls Enrich redacts them after it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/model/event.pb.h"

namespace stockade::enrich {

class HostNames {
  public:
    struct Options {
        // A crawler's; it asks again for what was forgotten when the answer's TTL is over.
        size_t max_addresses = 1024;  // of a sandbox
        // At about 150 bytes each: 10 MB at the worst.
        size_t max_all = 65536;
        // Of one address: as many as are asked for while an event is on its way. Where there were more the oldest go.
        size_t max_names = 4;
    };
    struct Counters {
        uint64_t forgotten = 0;  // a bound was reached: the sandbox's own went, all at once
        uint64_t refused = 0;    // other sandboxes have them all
    };
    explicit HostNames(Options options) : options_(options) {}

    // `address` as net.address has it: "192.0.2.1", "2001:db8::1". `name` in lower case, without a final dot; a byte that
    // host names do not have is \DDD.
    void Learn(const std::string& sandbox, const std::string& address, const std::string& name, uint64_t boot_ns);
    // Fills net.host_name in, where the address was an answer; in `original`, if there is one, too. True where it did.
    bool Enrich(v1::Event* event, v1::Event* original) const;
    void Forget(const std::string& sandbox);

    size_t size() const { return size_; }
    const Counters& counters() const { return counters_; }

  private:
    struct Led {
        uint64_t boot_ns = 0;  // from then on
        std::string name;
    };
    using Book = absl::flat_hash_map<std::string, std::vector<Led>>;  // by address; in the order of time

    void Clear(Book* book);

    const Options options_;
    Counters counters_;
    size_t size_ = 0;
    absl::flat_hash_map<std::string, Book> books_;  // by sandbox
};

}  // namespace stockade::enrich
