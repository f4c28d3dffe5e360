#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/base/sha256.h"
#include "userspace/guest/image_store.h"

namespace stockade::guest {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 30;

StatusOr<std::string> ContentOf(const std::string& path, const struct stat& st) {
    if (S_ISDIR(st.st_mode)) return std::string();
    if (S_ISLNK(st.st_mode)) {
        std::string target(4096, '\0');
        const ssize_t n = readlink(path.c_str(), target.data(), target.size());
        if (n < 0) return ErrnoStatus(errno, absl::StrCat("read the link ", path));
        return target.substr(0, static_cast<size_t>(n));
    }
    if (!S_ISREG(st.st_mode))
        return absl::InvalidArgumentError(absl::StrCat(path, " is neither file, directory nor link"));
    SK_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxFileBytes));
    return Sha256Hex(bytes);
}

// One line an entry: type and mode, the length of what follows so that no name can look like another line, the rest.
Status Add(const std::string& top, const std::string& below, std::string* lines) {
    const std::string path = absl::StrCat(top, "/", below);
    struct stat st;
    if (lstat(path.c_str(), &st) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
    SK_ASSIGN_OR_RETURN(const std::string content, ContentOf(path, st));
    absl::StrAppend(lines, absl::Hex(st.st_mode), " ", below.size(), " ", below, " ", content.size(), " ",
                    content, "\n");
    if (!S_ISDIR(st.st_mode)) return absl::OkStatus();
    std::vector<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
        names.push_back(it->path().filename().string());
    }
    if (error) return ErrnoStatus(error.value(), absl::StrCat("list ", path));
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
        SK_RETURN_IF_ERROR(Add(top, below.empty() ? name : absl::StrCat(below, "/", name), lines));
    }
    return absl::OkStatus();
}

}  // namespace

StatusOr<std::string> HashTree(const std::string& directory) {
    std::string lines;
    SK_RETURN_IF_ERROR(Add(directory, "", &lines));
    return Sha256Hex(lines);
}

}  // namespace stockade::guest
