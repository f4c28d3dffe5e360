// The second lock, so that the baseline of what is inside a sandbox has it as well.
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/bench/worker.h"
#include "userspace/base/errno.h"

namespace stockade::bench {
namespace {

constexpr uint64_t kRead = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kWrite = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                            LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                            LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                            LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                            LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
// What may be granted on a file; the rest is for directories only.
constexpr uint64_t kOnFiles = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE;

Status AddRule(int ruleset, const policy::LandlockRule& rule) {
    uint64_t rights = 0;
    // Landlock asks for read as well when a program is executed.
    if (rule.ops & (SK_OP_READ | SK_OP_EXEC | SK_OP_MAP)) rights |= kRead;
    if (rule.ops & SK_OP_WRITE) rights |= kWrite;
    const Fd path(open(rule.literal_prefix.c_str(), O_PATH | O_CLOEXEC));
    // What is not there cannot be opened either: no rule, as the launcher does it.
    if (rule.deny || rights == 0 || !path.ok()) return absl::OkStatus();
    struct stat about{};
    if (fstat(path.get(), &about) != 0)
        return ErrnoStatus(errno, absl::StrCat("look at ", rule.literal_prefix));
    if (!S_ISDIR(about.st_mode)) rights &= kOnFiles;
    landlock_path_beneath_attr beneath{};
    beneath.allowed_access = rights;
    beneath.parent_fd = path.get();
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) != 0) {
        return ErrnoStatus(errno, absl::StrCat("add a Landlock rule for ", rule.literal_prefix));
    }
    return absl::OkStatus();
}

}  // namespace

Status EnterLandlock(const std::vector<policy::LandlockRule>& rules) {
    landlock_ruleset_attr attributes{};
    attributes.handled_access_fs = kRead | kWrite;
    const Fd ruleset(
        static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0)));
    // No Landlock on this kernel: none in the sandbox either.
    if (!ruleset.ok()) return absl::OkStatus();
    for (const policy::LandlockRule& rule : rules) SK_RETURN_IF_ERROR(AddRule(ruleset.get(), rule));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return ErrnoStatus(errno, "set no_new_privs");
    if (syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0)
        return ErrnoStatus(errno, "enter the Landlock domain");
    return absl::OkStatus();
}

}  // namespace stockade::bench
