#include "userspace/contract/inputs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"
#include "userspace/base/sha256.h"
#include "userspace/contract/refusal.h"
#include "userspace/policy/reader.h"

namespace stockade::contract {
namespace {

using policy::Reader;

Status Bad(const std::string& path, absl::string_view why) {
    return Refused("contract.input", absl::StrCat("--in: ", Reader::Printable(path), ": ", why));
}

class Finder {
  public:
    explicit Finder(const ToolContract& contract) : contract_(contract), taken_(contract.inputs.size()) {}
    Status Directory(int fd, const std::string& prefix, int depth);
    StatusOr<FoundInputs> Finish();

  private:
    Status Entry(int directory, const std::string& name, const std::string& path, int depth);
    Status File(int directory, const std::string& name, const std::string& path, size_t rule);

    const ToolContract& contract_;
    std::vector<uint32_t> taken_;  // files, by rule
    FoundInputs found_;
    size_t entries_ = 0;
    uint64_t bytes_ = 0;
};

Status Finder::Directory(int fd, const std::string& prefix, int depth) {
    if (depth > kMaxInputDepth) return Bad(prefix, absl::StrCat("over ", kMaxInputDepth, " directories deep"));
    const int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    std::unique_ptr<DIR, int (*)(DIR*)> dir(copy < 0 ? nullptr : fdopendir(copy), closedir);
    if (dir == nullptr) return Bad(prefix.empty() ? "." : prefix, ErrnoStatus(errno, "list").message());
    std::vector<std::string> names;
    while (const dirent* entry = readdir(dir.get())) {
        const std::string name = entry->d_name;
        if (name == "." || name == "..") continue;
        if (++entries_ > kMaxInputEntries) return Bad(prefix.empty() ? "." : prefix, absl::StrCat("over ", kMaxInputEntries, " entries"));
        names.push_back(name);
    }
    for (const std::string& name : names) SK_RETURN_IF_ERROR(Entry(fd, name, prefix.empty() ? name : absl::StrCat(prefix, "/", name), depth));
    return absl::OkStatus();
}

Status Finder::Entry(int directory, const std::string& name, const std::string& path, int depth) {
    struct stat info{};
    if (fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return Bad(path, ErrnoStatus(errno, "look at it").message());
    if (S_ISDIR(info.st_mode)) {
        const Fd below(openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!below.ok()) return Bad(path, ErrnoStatus(errno, "open").message());
        return Directory(below.get(), path, depth + 1);
    }
    const std::vector<absl::string_view> parts = policy::SplitPath(path);
    for (size_t i = 0; i < contract_.inputs.size(); ++i) {
        if (policy::MatchPattern(contract_.inputs[i].pattern, parts)) return File(directory, name, path, i);
    }
    if (found_.left_out++ == 0) found_.first_left_out = path;
    return absl::OkStatus();
}

Status Finder::File(int directory, const std::string& name, const std::string& path, size_t rule) {
    const FileRule& declared = contract_.inputs[rule];
    if (++taken_[rule] > declared.max_files) return Bad(path, absl::StrCat("one more than max_files: ", declared.max_files, " of ", declared.text));
    const Fd file(openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat info{};
    if (!file.ok()) return Bad(path, errno == ELOOP ? "a link is not followed" : ErrnoStatus(errno, "open").message());
    if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return Bad(path, "is no regular file");
    InputFile row{.path = path, .bytes = 0, .sha256 = ""};
    Sha256Stream digest;
    char buffer[65536];
    while (true) {
        const ssize_t n = read(file.get(), buffer, sizeof(buffer));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return Bad(path, ErrnoStatus(errno, "read").message());
        if (n == 0) break;
        row.bytes += static_cast<uint64_t>(n);
        bytes_ += static_cast<uint64_t>(n);
        if (row.bytes > declared.max_bytes) return Bad(path, absl::StrCat("over max_size: ", declared.max_bytes, " bytes"));
        if (bytes_ > kMaxInputBytes) return Bad(path, absl::StrCat("over ", kMaxInputBytes, " bytes in all"));
        digest.Add(absl::string_view(buffer, static_cast<size_t>(n)));
    }
    row.sha256 = digest.Hex();
    found_.files.push_back(std::move(row));
    if (found_.files.size() > kMaxInputFiles) return Bad(path, absl::StrCat("over ", kMaxInputFiles, " files"));
    return absl::OkStatus();
}

StatusOr<FoundInputs> Finder::Finish() {
    for (size_t i = 0; i < taken_.size(); ++i) {
        if (contract_.inputs[i].required && taken_[i] == 0)
            return Bad(contract_.inputs[i].text, "is declared and missing");
    }
    std::sort(found_.files.begin(), found_.files.end(), [](const InputFile& a, const InputFile& b) { return a.path < b.path; });
    return std::move(found_);
}

}  // namespace

StatusOr<FoundInputs> FindInputs(const ToolContract& contract, int directory_fd) {
    Finder finder(contract);
    SK_RETURN_IF_ERROR(finder.Directory(directory_fd, "", 0));
    return finder.Finish();
}

}  // namespace stockade::contract
