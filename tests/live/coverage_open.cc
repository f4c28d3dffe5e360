#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/live/coverage_case.h"

namespace stockade::live {
namespace {

using model::Operation;

bool GotBytes(World&, const Result& result) { return absl::StrContains(result.output, "data secret bytes"); }
bool Written(World& world, const Result&) { return absl::StartsWith(world.Content("{no}/secret"), "x"); }
bool Emptied(World& world, const Result&) { return world.Content("{no}/secret").empty(); }
bool Created(World& world, const Result&) { return world.Exists("{no}/new"); }

Case Read(Operation operation, const std::string& name, std::vector<std::string> args) {
    return {.operation = operation, .name = name, .args = std::move(args), .code = SK_CODE_READ_NOT_ALLOWED, .effect = GotBytes};
}

Case With(Case c, Policy policy, std::function<void(World&)> prepare = nullptr) {
    c.policy = std::move(policy);
    c.prepare = std::move(prepare);
    return c;
}

Case Code(Case c, uint32_t code) {
    c.code = code;
    return c;
}

Case Optional(Case c) {
    c.optional = true;
    return c;
}

// Seventeen directories with long names: longer than any path that a call takes, within the slots of a verdict.
std::string LongName() { return std::string(245, 'l'); }
void DeepTree(World& world) {
    int dir = open(world.Fill("{no}").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 17; i++) {
        (void)mkdirat(dir, LongName().c_str(), 0755);
        int next = openat(dir, LongName().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
        close(dir);
        dir = next;
    }
    Fd file(openat(dir, "secret", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    (void)WriteAll(file.get(), "secret bytes"); // the control run tells
    close(dir);
}

void BindAlias(World& world) {
    (void)mkdir(world.Fill("{in}/alias").c_str(), 0755);
    (void)mount(world.Fill("{no}").c_str(), world.Fill("{in}/alias").c_str(), nullptr, MS_BIND, nullptr); // the control run tells
}

// What the policy lets read, mounted again where it does not.
void BindElsewhere(World& world) {
    world.Write("{in}/file", "secret bytes");
    (void)mkdir(world.Fill("{no}/alias").c_str(), 0755);
    (void)mount(world.Fill("{in}").c_str(), world.Fill("{no}/alias").c_str(), nullptr, MS_BIND, nullptr);
}

// Another task reads: only the caller's own words tell that it lived.
Case Lives(Case c) {
    c.after = "lived";
    return c;
}

void NameInFile(World& world) { world.Write("{in}/name", world.Fill("{no}/secret") + std::string(1, '\0')); }

}  // namespace

std::vector<Case> OpenCases() {
    const Policy deny = {.deny = {"**/secret"}};
    return {
        Read(Operation::OPEN_READ, "open_read", {"open_read", "{no}/secret"}),
        Read(Operation::OPEN_READ, "open_read_old", {"open_old", "{no}/secret"}),
        Read(Operation::OPEN_READ, "open_read_openat2", {"openat2", "{no}/secret"}),
        With(Code(Read(Operation::OPEN_READ, "open_read_denied", {"open_read", "{in}/secret"}), SK_CODE_READ_DENIED), deny,
             [](World& world) { world.Write("{in}/secret", "secret bytes"); }),
        {.operation = Operation::OPEN_WRITE, .name = "open_write", .args = {"open_write", "{no}/secret"}, .code = SK_CODE_WRITE_NOT_ALLOWED, .effect = Written},
        {.operation = Operation::OPEN_WRITE, .name = "open_read_write", .args = {"open_read_write", "{no}/secret"}, .code = SK_CODE_WRITE_NOT_ALLOWED,
         .policy = {.read = {"{no}/**"}}, .effect = Written},
        {.operation = Operation::OPEN_CREATE, .name = "open_create", .args = {"open_create", "{no}/new"}, .code = SK_CODE_WRITE_NOT_ALLOWED,
         .effect = Created, .lasting = true},
        {.operation = Operation::OPEN_CREATE, .name = "open_creat", .args = {"creat", "{no}/new"}, .code = SK_CODE_WRITE_NOT_ALLOWED,
         .effect = Created, .lasting = true},
        {.operation = Operation::OPEN_TRUNCATE, .name = "open_truncate", .args = {"open_truncate", "{no}/secret"}, .code = SK_CODE_WRITE_NOT_ALLOWED,
         .effect = Emptied, .lasting = true},
        {.operation = Operation::OPEN_TRUNCATE, .name = "open_read_truncate", .args = {"open_read_truncate", "{no}/secret"},
         .code = SK_CODE_WRITE_NOT_ALLOWED, .policy = {.read = {"{no}/**"}}, .effect = Emptied, .lasting = true},
        {.operation = Operation::OPEN_TMPFILE, .name = "open_tmpfile", .args = {"open_tmpfile", "{no}"}, .code = SK_CODE_WRITE_NOT_ALLOWED,
         .policy = {.read = {"{no}", "{no}/**"}}},
        {.operation = Operation::OPEN_DIRECTORY, .name = "open_directory", .args = {"open_directory", "{no}"}, .code = SK_CODE_READ_NOT_ALLOWED},
        Optional(Read(Operation::OPEN_BY_HANDLE, "open_by_handle", {"open_by_handle", "{no}", "secret"})),
        Lives(Read(Operation::OPEN_THREAD_READS, "open_thread_reads", {"open_thread_reads", "{no}/secret"})),
        Lives(Read(Operation::OPEN_SHARED_TABLE, "open_shared_table", {"open_shared_table", "{no}/secret"})),
        Lives(Read(Operation::OPEN_SHARED_TABLE, "open_shared_table_births", {"open_shared_table_births", "{no}/secret"})),
        Lives(Read(Operation::OPEN_SHARED_TABLE, "open_shared_table_forks", {"open_shared_table_forks", "{no}/secret"})),
        Lives(Read(Operation::OPEN_SHARED_TABLE, "open_shared_table_unshares", {"open_shared_table_unshares", "{no}/secret"})),
        Optional(Read(Operation::OPEN_COMPAT, "open_compat", {"open_compat", "{no}/secret"})),
        Optional(With(Read(Operation::OPEN_IO_URING, "open_io_uring", {"open_io_uring", "{no}/secret", "0"}), {.grants = {"io_uring"}})),
        Optional(With(Read(Operation::OPEN_IO_URING, "open_io_uring_worker", {"open_io_uring", "{no}/secret", "1"}), {.grants = {"io_uring"}})),
        With(Read(Operation::OPEN_HARD_LINK, "open_hard_link", {"open_read", "{no}/link"}), {},
             [](World& world) {
                 world.Write("{in}/file", "secret bytes");
                 (void)link(world.Fill("{in}/file").c_str(), world.Fill("{no}/link").c_str()); // the control run tells
             }),
        With(Code(Read(Operation::OPEN_BIND_ALIAS, "open_bind_alias", {"open_read", "{in}/alias/secret"}), SK_CODE_READ_DENIED), deny, BindAlias),
        With(Read(Operation::OPEN_BIND_ALIAS, "open_bind_elsewhere", {"open_read", "{no}/alias/file"}), {}, BindElsewhere),
        With(Read(Operation::OPEN_CHROOT_ALIAS, "open_chroot_alias", {"chroot_open", "{no}", "/secret"}), {.grants = {"chroot"}}),
        Read(Operation::OPEN_CHROOT_ALIAS, "open_proc_root_alias", {"open_read", "/proc/self/root/{no}/secret"}),
        With(Read(Operation::OPEN_LONG_PATH, "open_long_path", {"open_deep", "{no}", LongName(), "17", "secret"}), {}, DeepTree),
        With(Read(Operation::OPEN_UNFAULTED, "open_unfaulted", {"open_unfaulted", "{in}/name"}), {}, NameInFile),
    };
}

}  // namespace stockade::live
