// SandboxPolicy files: text to checked documents.
//
//   ParseResult parsed = ParseFiles({{"a.yaml", text_a}, {"b.yaml", text_b}});
//   for (const Diagnostic& d : parsed.diagnostics) puts(ToString(d).c_str());
//
// Each error of each file is found in one run. A document with errors is still in the result as
// far as it was understood; use HasErrors before acting on it.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/policy/document.h"

namespace stockade::policy {

struct SourceFile {
    std::string name;  // shown in positions
    std::string text;
};

struct ParseResult {
    std::vector<SandboxPolicy> policies;
    std::vector<PolicyTest> tests;
    std::vector<Diagnostic> diagnostics;  // sorted by file as given, then line and column
};

ParseResult ParseFiles(const std::vector<SourceFile>& files);

// An object in a list stands at "FILE: items N" in positions, so that its errors are its own. This is FILE, also where it is that alone.
absl::string_view FileOfItem(absl::string_view file);

// "10.0.0.0/8", "2001:db8::/32", "192.0.2.1". kInvalidArgument says what is wrong with it.
StatusOr<NetworkRule> ParseCidr(absl::string_view text);

// "192.0.2.1:443", "[2001:db8::1]:443": address words and port.
struct AddressPort {
    NetworkRule address;  // kCidr of full length
    uint16_t port = 0;
};
StatusOr<AddressPort> ParseAddressPort(absl::string_view text);

}  // namespace stockade::policy
