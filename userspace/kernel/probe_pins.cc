#include "userspace/kernel/probe_pins.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"

namespace stockade::kernel {
namespace {

// abi<N>/maps/<name> and one to spare.
constexpr int kMaxDepth = 4;

// Entries without . and .., as a snapshot: unlinking while reading a directory skips some.
StatusOr<std::vector<dirent>> List(const Fd& dir) {
    // The stream wants a descriptor of its own, which it closes.
    SK_ASSIGN_OR_RETURN(Fd own, Fd::OpenAt(dir, ".", O_RDONLY | O_DIRECTORY));
    DIR* stream = fdopendir(own.get());
    if (stream == nullptr) return ErrnoStatus(errno, "fdopendir");
    (void)own.Release();
    std::vector<dirent> entries;
    while (dirent* entry = readdir(stream)) {
        if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) {
            entries.push_back(*entry);
        }
    }
    closedir(stream);
    return entries;
}

Status RemoveTree(const Fd& parent, const std::string& name, int depth) {
    if (depth > kMaxDepth) return absl::InternalError(absl::StrCat(name, " is too deep"));
    {
        SK_ASSIGN_OR_RETURN(Fd dir,
                            Fd::OpenAt(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
        SK_ASSIGN_OR_RETURN(std::vector<dirent> entries, List(dir));
        for (const dirent& entry : entries) {
            if (entry.d_type == DT_DIR) {
                SK_RETURN_IF_ERROR(RemoveTree(dir, entry.d_name, depth + 1));
            } else if (unlinkat(dir.get(), entry.d_name, 0) != 0 && errno != ENOENT) {
                return ErrnoStatus(errno, absl::StrCat("unlink ", entry.d_name));
            }
        }
    }
    if (unlinkat(parent.get(), name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
        return ErrnoStatus(errno, absl::StrCat("rmdir ", name));
    }
    return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<std::string>> PinDirectories(const std::string& dir) {
    std::vector<std::string> names;
    auto open = Fd::Open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (absl::IsNotFound(open.status())) return names;
    if (!open.ok()) return open.status();
    SK_ASSIGN_OR_RETURN(std::vector<dirent> entries, List(*open));
    for (const dirent& entry : entries) {
        if (entry.d_type == DT_DIR) names.emplace_back(entry.d_name);
    }
    return names;
}

StatusOr<std::vector<StalePins>> FindStalePins(const std::string& pin_dir, unsigned abi) {
    std::vector<StalePins> stale;
    SK_ASSIGN_OR_RETURN(const std::vector<std::string> entries, PinDirectories(pin_dir));
    for (const std::string& entry : entries) {
        absl::string_view name = entry;
        unsigned number = 0;
        if (absl::StartsWith(name, "new_")) {
            stale.push_back({entry, "never finished"});
        } else if (absl::ConsumePrefix(&name, "abi") && absl::SimpleAtoi(name, &number) &&
                   number != abi) {
            stale.push_back(
                {entry, absl::StrCat("of another version's abi ", number, "; this one has abi ", abi)});
        }
    }
    return stale;
}

Status RemovePins(const std::string& dir, const std::string& name) {
    SK_ASSIGN_OR_RETURN(Fd open, Fd::Open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    return Annotate(RemoveTree(open, name, 0), absl::StrCat("remove ", dir, "/", name));
}

Status RemoveStalePins(const std::string& pin_dir, const std::vector<StalePins>& pins) {
    SK_ASSIGN_OR_RETURN(Fd dir, Fd::Open(pin_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (flock(dir.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) {
            return absl::UnavailableError(absl::StrCat("an agent holds ", pin_dir, ": stop it first"));
        }
        return ErrnoStatus(errno, absl::StrCat("lock ", pin_dir));
    }
    for (const StalePins& one : pins) {
        SK_RETURN_IF_ERROR(Annotate(RemoveTree(dir, one.name, 0), absl::StrCat("remove ", one.name)));
    }
    return absl::OkStatus();
}

}  // namespace stockade::kernel
