#include "userspace/launch/native_check.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace stockade::launch {
namespace {

Status Bad(absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("sandbox: ", what)); }

Status CheckId(const std::string& id) {
    if (id.empty() || id.size() > 64) return Bad("the id has 1 to 64 characters");
    for (char c : id) {
        if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') {
            return Bad("the id holds another character than A-Z a-z 0-9 _");
        }
    }
    return absl::OkStatus();
}

Status CheckStrings(const NativeSpec& spec) {
    size_t total = 0;
    for (const auto* list : {&spec.argv, &spec.env}) {
        for (const std::string& text : *list) {
            if (text.find('\0') != std::string::npos) return Bad("a NUL byte in argv or env");
            total += text.size() + 1;
        }
    }
    if (total > kMaxArgBytes) return Bad("argv and env are over 1 MiB");
    for (const std::string& row : spec.env) {
        if (row.find('=') == std::string::npos || row[0] == '=')
            return Bad("env holds a row that is not K=V");
    }
    if (spec.cwd.empty() || spec.cwd[0] != '/' || spec.cwd.find('\0') != std::string::npos) {
        return Bad("cwd is not absolute");
    }
    return absl::OkStatus();
}

// Pipes and /dev/null only. A terminal could be typed into, a connected socket be used past the
// cgroup programs, which judge only what is made inside. A file is shared with whoever opened it:
// its offset, its flags, and all of it that the descriptor's mode allows.
Status CheckStdio(const NativeSpec& spec) {
    if (spec.tty) return absl::OkStatus();
    for (int i = 0; i < 3; ++i) {
        int fd = spec.stdio[i];
        if (fd < 0) continue;
        struct stat st;
        if (fstat(fd, &st) != 0) return Bad(absl::StrCat("stdio ", i, " is not open"));
        if (isatty(fd)) return Bad(absl::StrCat("stdio ", i, " is a terminal; ask for a tty"));
        const bool null = S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
        if (!S_ISFIFO(st.st_mode) && !null) {
            return Bad(absl::StrCat("stdio ", i, " is neither a pipe nor /dev/null",
                                    S_ISSOCK(st.st_mode) ? " but a socket" : ""));
        }
    }
    return absl::OkStatus();
}

}  // namespace

Status CheckBase(const NativeSpec& base) {
    SK_RETURN_IF_ERROR(CheckId(base.id));
    if (!base.cgroup.dir.ok() || !base.cgroup.parent.ok()) return Bad("there is no cgroup");
    return absl::OkStatus();
}

Status CheckSpec(const NativeSpec& spec) {
    SK_RETURN_IF_ERROR(CheckBase(spec));
    if (spec.argv.empty()) return Bad("there is no command");
    SK_RETURN_IF_ERROR(CheckStrings(spec));
    if (spec.uid == 0 || spec.gid == 0) return Bad("uid or gid is 0");
    SK_RETURN_IF_ERROR(CheckStdio(spec));
    if (spec.binds.size() > kMaxBinds) return Bad("over 64 binds");
    if (spec.in_files.size() > kMaxInFiles) return Bad("over 4,096 files of /in");
    if (spec.host_ports.size() > kMaxHostPorts) return Bad("over 32 host ports");
    if (spec.landlock.paths.size() > kMaxLandlockPaths) return Bad("over 4,096 landlock paths");
    if (spec.seccomp.empty()) return Bad("there is no seccomp program");
    if (spec.seccomp.floor.size() > 4096 || spec.seccomp.profile.size() > 4096) {
        return Bad("a seccomp filter is over 4,096 instructions");
    }
    return absl::OkStatus();
}

}  // namespace stockade::launch
