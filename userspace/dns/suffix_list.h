// The Public Suffix List: which part of a name somebody registered.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::dns {

// Of a rule: what it says of its own name, of all names one label below, and who wrote it.
enum SuffixFlags : uint8_t {
    kSuffixIcann = 1,      // "co.uk"
    kSuffixPrivate = 2,    // "github.io": a provider's customers have the names below
    kWildcardIcann = 4,    // "*.ck", kept under "ck"
    kWildcardPrivate = 8,  // "*.compute.example"
    kException = 16,       // "!www.ck": no suffix whatever a wildcard says
};

// Where a name is cut. All views are parts of the name that was asked about.
struct Zone {
    absl::string_view
        registered;           // one label below the longest suffix; empty when the name is a suffix itself
    absl::string_view icann;  // the same without the rules of providers; == registered where none applies
    bool known = false;       // false: the top-level domain is not in the list
};

// Immutable; any thread. Names are lower-case A-labels without a final dot.
//
//   SK_ASSIGN_OR_RETURN(SuffixList list, SuffixList::Parse(text));
//   list.Find("a.b.github.io").registered == "b.github.io"; .icann == "github.io"
class SuffixList {
  public:
    // The text of public_suffix_list.dat. kInvalidArgument names the line: an unknown form of rule,
    // a rule twice, a missing or empty section. `min_rules` refuses a list that was cut.
    static StatusOr<SuffixList> Parse(absl::string_view text, size_t min_rules = 1000);

    Zone Find(absl::string_view name) const;
    size_t size() const { return rules_.size(); }
    // Each suffix with its flags, in no order: what a table for the kernel is made from.
    void ForEach(absl::FunctionRef<void(absl::string_view suffix, uint8_t flags)> visit) const;
    // Labels of the longest suffix: how far a search has to go.
    size_t max_labels() const { return max_labels_; }

  private:
    Status AddRule(absl::string_view rule, bool is_private);

    absl::flat_hash_map<std::string, uint8_t> rules_;
    size_t max_labels_ = 0;
};

}  // namespace stockade::dns
