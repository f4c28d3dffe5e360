// Secrets in arguments, before anybody sees them.
#pragma once

#include <string>
#include <vector>

namespace stockade::decode {

// Replaces values after --password, --token and kin, NAME=value of names that speak of secrets,
// and strings of well-known shapes (cloud keys, forge tokens, JSON web tokens, user:password@
// in URLs) by [redacted]. Returns how many arguments it changed. Takes raw bytes.
int RedactArgv(std::vector<std::string>* argv);

}  // namespace stockade::decode
