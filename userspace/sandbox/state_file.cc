#include "userspace/sandbox/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"
#include "userspace/model/sandbox.h"

namespace stockade::sandbox {
namespace {

constexpr absl::string_view kSuffix = ".pb";
// argv is the only part that grows, and the protocol bounds it at 1 MiB.
constexpr size_t kMaxFileBytes = 2 << 20;

}  // namespace

StatusOr<StateFiles> StateFiles::Create(const std::string& directory) {
    if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
        return ErrnoStatus(errno, absl::StrCat("make ", directory));
    }
    return StateFiles(directory);
}

Status StateFiles::Write(const StoredSandbox& stored) const {
    // The id becomes a file name.
    SK_RETURN_IF_ERROR(model::SandboxId::Parse(stored.id()).status());
    return ReplaceFile(absl::StrCat(directory_, "/", stored.id(), kSuffix), stored.SerializeAsString(), 0600);
}

Status StateFiles::Remove(const std::string& id) const {
    SK_RETURN_IF_ERROR(model::SandboxId::Parse(id).status());
    const std::string path = absl::StrCat(directory_, "/", id, kSuffix);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
        return ErrnoStatus(errno, absl::StrCat("remove ", path));
    }
    return absl::OkStatus();
}

StatusOr<StateFiles::Loaded> StateFiles::Load() const {
    Loaded loaded;
    std::error_code error;
    for (auto it = std::filesystem::directory_iterator(directory_, error);
         !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
        const std::string name = it->path().filename();
        if (!absl::EndsWith(name, kSuffix) || absl::StartsWith(name, ".")) continue;
        const StatusOr<std::string> bytes = ReadFile(it->path(), kMaxFileBytes);
        StoredSandbox stored;
        if (!bytes.ok() || !stored.ParseFromString(*bytes) || absl::StrCat(stored.id(), kSuffix) != name ||
            !model::SandboxId::Parse(stored.id()).ok()) {
            loaded.broken.push_back(name);
            continue;
        }
        loaded.sandboxes.push_back(std::move(stored));
    }
    if (error) return absl::InternalError(absl::StrCat("list ", directory_, ": ", error.message()));
    return loaded;
}

}  // namespace stockade::sandbox
