// Policy files from disk into a library, for the `policy` commands.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"

namespace stockade::cmd {

struct LoadedPolicies {
    policy::PolicyLibrary library;
    std::vector<policy::SandboxPolicy> policies;  // of the files, in order
    std::vector<policy::PolicyTest> tests;
    std::vector<policy::Diagnostic> diagnostics;
};

// `with` and the *.yaml of `dirs` (which may be absent) are only there to be extended: their
// warnings are dropped. An error of a file of `with` is kept; one of a directory's file becomes a
// warning, and its policies are left out: a policy that does not need them is none the worse. A file
// that cannot be read is a diagnostic.
LoadedPolicies LoadPolicies(const std::vector<std::string>& files, const std::vector<std::string>& with,
                            const std::vector<std::string>& dirs);

// One for `-o json`, of policies and of rules.
std::string DiagnosticJson(const policy::Diagnostic& diagnostic);

}  // namespace stockade::cmd
