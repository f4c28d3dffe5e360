// The patterns by which secrets are known, each with the name that events and counters use.
#pragma once

#include <string>
#include <vector>

namespace stockade::decode {

// `find` is RE2 over bytes (Latin-1), without regard to case: DNS names come in lower case. What its
// group `secret` matches is replaced, or the whole match where it has none.
//
// It reads text in which control bytes are written \xNN (event.proto), so \b does not end a token
// there: SK_REDACT_START does.
struct RedactPattern {
    std::string name;
    std::string find;
};

// What may stand before a token: nothing, no letter and no digit, or an escaped byte.
#define SK_REDACT_START "(?:^|[^0-9A-Za-z]|\\\\x[0-9a-f]{2})"

// Names of options and variables whose value is a secret, without `pw` and `pwd`, which are also
// the working directory.
#define SK_REDACT_NAME                                                                 \
    "(?:pass(?:word|wd|phrase)?|token|secret|credentials?|api[-_]?key|access[-_]?key|" \
    "private[-_]?key|auth[-_]?key|account[-_]?key|signing[-_]?key|encryption[-_]?key|bearer)"

const std::vector<RedactPattern>& DefaultPatterns();

}  // namespace stockade::decode
