#include <sys/stat.h>
#include <sys/xattr.h>

#include "tests/live/coverage_case.h"

namespace stockade::live {
namespace {

using model::Operation;
using Effect = std::function<bool(World&, const Result&)>;

bool Gone(World& world, const Result&) { return !world.Exists("{no}/secret"); }
bool New(World& world, const Result&) { return world.Exists("{no}/new"); }
bool Inside(World& world, const Result&) { return world.Exists("{in}/new"); }
bool Emptied(World& world, const Result&) { return world.Content("{no}/secret").empty(); }

struct stat Secret(World& world) {
    struct stat info {};
    (void)stat(world.Fill("{no}/secret").c_str(), &info); // zeroes tell
    return info;
}
bool Mode(World& world, const Result&) { return (Secret(world).st_mode & 0777) == 0600; }
bool Owner(World& world, const Result&) { return Secret(world).st_uid == 1; }
bool Old(World& world, const Result&) { return Secret(world).st_mtim.tv_sec == 1; }
bool Attribute(World& world, const Result&) {
    char byte;
    return getxattr(world.Fill("{no}/secret").c_str(), "trusted.stockade", &byte, 1) == 1;
}
bool NoAttribute(World& world, const Result& result) { return !Attribute(world, result); }

void Directory(World& world) { (void)mkdir(world.Fill("{no}/dir").c_str(), 0755); }
bool DirectoryGone(World& world, const Result&) { return !world.Exists("{no}/dir"); }

Case Change(Operation operation, const std::string& name, std::vector<std::string> args, Effect effect,
            std::function<void(World&)> prepare = nullptr) {
    return {.operation = operation, .name = name, .args = std::move(args), .code = SK_CODE_WRITE_NOT_ALLOWED, .prepare = std::move(prepare),
            .effect = std::move(effect)};
}

// The source of a link must be readable and writable: it is asked to be read first.
Case LinkSource(const std::string& name, const std::string& trigger) {
    Case c = Change(Operation::LINK, name, {trigger, "{no}/secret", "{in}/new"}, Inside);
    c.code = SK_CODE_READ_NOT_ALLOWED;
    return c;
}

Case RenameOverDeny() {
    Case c = Change(Operation::RENAME_OVER_DENY, "rename_over_deny", {"rename", "{in}/dir", "{in}/new"}, Inside, [](World& world) {
        (void)mkdir(world.Fill("{in}/dir").c_str(), 0755);
        world.Write("{in}/dir/secret", "secret bytes");
    });
    c.code = SK_CODE_RENAME_OVER_DENY;
    c.policy.deny = {"{in}/dir/secret"};
    return c;
}

// The one name space of attributes that every file system of the kernels has asks for CAP_SYS_ADMIN,
// which needs a grant of its own.
Case Trusted(Case c) {
    c.policy.grants = {"setns"};
    return c;
}

}  // namespace

std::vector<Case> PathCases() {
    return {
        Change(Operation::TRUNCATE, "truncate", {"truncate", "{no}/secret"}, Emptied),
        Change(Operation::UNLINK, "unlink", {"unlink", "{no}/secret"}, Gone),
        Change(Operation::UNLINK, "unlink_old", {"unlink_old", "{no}/secret"}, Gone),
        Change(Operation::RMDIR, "rmdir", {"rmdir", "{no}/dir"}, DirectoryGone, Directory),
        Change(Operation::RMDIR, "rmdir_at", {"rmdir_at", "{no}/dir"}, DirectoryGone, Directory),
        Change(Operation::MKDIR, "mkdir", {"mkdir", "{no}/new"}, New),
        Change(Operation::MKDIR, "mkdir_old", {"mkdir_old", "{no}/new"}, New),
        Change(Operation::MKNOD, "mkfifo", {"mkfifo", "{no}/new"}, New),
        Change(Operation::RENAME, "rename_source", {"rename", "{no}/secret", "{in}/new"}, Inside),
        Change(Operation::RENAME, "rename_target", {"rename", "{in}/file", "{no}/new"}, New),
        Change(Operation::RENAME, "rename_old", {"rename_old", "{no}/secret", "{in}/new"}, Inside),
        Change(Operation::RENAME, "rename_exchange", {"exchange", "{in}/file", "{no}/secret"},
               [](World& world, const Result&) { return world.Content("{in}/file") == "secret bytes"; }),
        RenameOverDeny(),
        LinkSource("link_source", "link"),
        LinkSource("link_source_old", "link_old"),
        Change(Operation::LINK, "link_target", {"link", "{in}/file", "{no}/new"}, New),
        Change(Operation::LINK, "link_tmpfile", {"link_tmpfile", "{in}", "{no}/new"}, New),
        Change(Operation::SYMLINK, "symlink", {"symlink", "anywhere", "{no}/new"}, New),
        Change(Operation::SYMLINK, "symlink_old", {"symlink_old", "anywhere", "{no}/new"}, New),
        Change(Operation::CHMOD, "chmod", {"chmod", "{no}/secret"}, Mode),
        Change(Operation::CHMOD, "chmod_old", {"chmod_old", "{no}/secret"}, Mode),
        Change(Operation::CHOWN, "chown", {"chown", "{no}/secret"}, Owner),
        Change(Operation::CHOWN, "chown_old", {"chown_old", "{no}/secret"}, Owner),
        Trusted(Change(Operation::SETXATTR, "setxattr", {"setxattr", "{no}/secret"}, Attribute)),
        Trusted(Change(Operation::SETXATTR, "removexattr", {"removexattr", "{no}/secret"}, NoAttribute,
                       [](World& world) { (void)setxattr(world.Fill("{no}/secret").c_str(), "trusted.stockade", "x", 1, 0); })),
        Change(Operation::UTIMES, "utimes", {"utimes", "{no}/secret"}, Old),
    };
}

}  // namespace stockade::live
