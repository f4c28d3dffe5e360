#include "userspace/cmd/hidden_scripts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/base/errno.h"
#include "userspace/launch/native.h"

namespace stockade::cmd {
namespace {

constexpr const char* kScripts[] = {"/usr/bin/lsb_release"};
// execve(2) of it fails with ENOENT, as for a program that is not there.
constexpr absl::string_view kCover = "#!/nonexistent/interpreter\n";
constexpr size_t kMaxScriptBytes = 64 << 10;

// "/bin/sh" of "#!/bin/sh -e"; empty for what is no script.
std::string InterpreterOf(const std::string& script) {
    const StatusOr<std::string> text = ReadFile(script, kMaxScriptBytes);
    if (!text.ok()) return "";
    absl::string_view line = absl::string_view(*text).substr(0, text->find('\n'));
    if (!absl::ConsumePrefix(&line, "#!")) return "";
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    return words.empty() ? "" : words.front();
}

StatusOr<Fd> Cover(const std::string& runtime_dir) {
    const std::string path = runtime_dir + "/absent";
    SK_ASSIGN_OR_RETURN(Fd file, Fd::Open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0755));
    SK_ASSIGN_OR_RETURN(const std::string now, ReadAll(file.get(), kMaxScriptBytes));
    if (now != kCover) {
        if (ftruncate(file.get(), 0) != 0 || lseek(file.get(), 0, SEEK_SET) != 0)
            return ErrnoStatus(errno, absl::StrCat("write ", path));
        SK_RETURN_IF_ERROR(WriteAll(file.get(), kCover));
    }
    // The umask may have taken what makes it a program.
    if (fchmod(file.get(), 0755) != 0) return ErrnoStatus(errno, absl::StrCat("mode of ", path));
    return Fd::Open(path, O_PATH | O_NOFOLLOW);
}

}  // namespace

bool WouldEnd(const policy::ResolvedPolicy& policy, const policy::PolicyView& view,
              const std::string& script) {
    if (!policy.present[SK_SECTION_EXEC] || policy.mode == SK_MODE_OBSERVE) return false;
    if (policy.violation[SK_SECTION_EXEC] == SK_VERDICT_DENY) return false;
    const std::string interpreter = InterpreterOf(script);
    if (interpreter.empty()) return false;
    char real[PATH_MAX];
    if (realpath(interpreter.c_str(), real) == nullptr) return false;
    // Patterns are not followed through links here, so one of both names has to be allowed.
    return !policy::EvaluatePath(view, interpreter).Allows(SK_OP_EXEC) &&
           !policy::EvaluatePath(view, real).Allows(SK_OP_EXEC);
}

Status HideScripts(const policy::ResolvedPolicy& policy, const policy::PolicyView& view,
                   const std::string& runtime_dir, api::StartShim* order, std::vector<api::FdArg>* fds,
                   std::vector<Fd>* keep) {
    for (const std::string script : kScripts) {
        if (!WouldEnd(policy, view, script)) continue;
        api::Run& run = *order->mutable_run();
        bool taken = run.binds_size() >= static_cast<int>(launch::kMaxBinds);
        for (const api::Bind& bind : run.binds()) {
            taken |= (bind.target().empty() ? bind.source() : bind.target()) == script;
        }
        if (taken) continue;  // the caller's own word
        SK_ASSIGN_OR_RETURN(Fd cover, Cover(runtime_dir));
        api::Bind& bind = *run.add_binds();
        bind.set_source(runtime_dir + "/absent");
        bind.set_target(script);
        fds->emplace_back(api::FD_BIND, cover.get());
        keep->push_back(std::move(cover));
    }
    return absl::OkStatus();
}

}  // namespace stockade::cmd
