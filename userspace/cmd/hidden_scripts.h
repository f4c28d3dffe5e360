// Shell scripts that honest programs start by name and do without when there is none.
//
// pip asks lsb_release for the name of the distribution. Where a policy stops every shell, and ends
// the sandbox that starts one, that question would end it. There, the script is covered by a file
// whose interpreter does not exist: whoever starts it is told that there is no such program.
#pragma once

#include <string>
#include <vector>

#include "userspace/api/channel.h"
#include "userspace/base/fd.h"
#include "userspace/base/status.h"
#include "userspace/policy/document.h"
#include "userspace/policy/evaluate.h"

namespace stockade::cmd {

// Whether starting this script would end a sandbox of that policy: its interpreter is not allowed,
// under the name that it has there nor under its own, and a refusal kills.
bool WouldEnd(const policy::ResolvedPolicy& policy, const policy::PolicyView& view,
              const std::string& script);

// Appends a bind for each such script of this host to the order, and its descriptor, which `keep`
// owns, to `fds`. `runtime_dir` is where the covering file is made.
Status HideScripts(const policy::ResolvedPolicy& policy, const policy::PolicyView& view,
                   const std::string& runtime_dir, api::StartShim* order, std::vector<api::FdArg>* fds,
                   std::vector<Fd>* keep);

}  // namespace stockade::cmd
