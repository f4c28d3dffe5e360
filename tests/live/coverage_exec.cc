#include <fcntl.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/live/coverage_case.h"

namespace stockade::live {
namespace {

using model::Operation;

bool Ran(World&, const Result& result) { return absl::StrContains(result.output, "it ran"); }

void Program(World& world) { world.Copy("{triggers}", "{no}/program"); }

void Script(World& world, const std::string& interpreter, const std::string& path) {
    world.Write(path, world.Fill(absl::StrCat("#!", interpreter, "\necho it ran\n")), 0755);
}

// The loader by the name that the kernel resolves it to.
void Loader(World& world) {
    char real[4096];
    if (realpath("/lib64/ld-linux-x86-64.so.2", real) || realpath("/lib/ld-linux-aarch64.so.1", real)) world.words["loader"] = real;
    world.Copy("/usr/bin/echo", "{no}/echo");
}

const std::vector<std::string> kLibraries = {"/usr/lib/**", "/lib/**", "/lib64/**"};

Policy WithLoader() {
    return {.exec = {"{loader}"}, .libraries = kLibraries, .read = {"/usr/lib/**", "/lib/**", "/lib64/**", "/etc/ld.so.cache"}};
}

// dash and what it needs.
Policy WithShell() {
    Policy policy = {.exec = {"/usr/bin/dash"}, .libraries = kLibraries, .read = {"/usr/lib/**", "/lib/**", "/lib64/**", "/etc/ld.so.cache"}};
    return policy;
}

}  // namespace

std::vector<Case> ExecCases() {
    std::vector<Case> cases = {
        {.operation = Operation::EXEC_PROGRAM, .name = "exec_program", .args = {"exec", "{no}/program", "say", "it ran"},
         .code = SK_CODE_EXEC_NOT_ALLOWED, .prepare = Program, .effect = Ran},
        {.operation = Operation::EXEC_PROGRAM, .name = "exec_orphan", .args = {"exec_orphan", "{no}/program", "say", "it ran"},
         .code = SK_CODE_EXEC_NOT_ALLOWED, .prepare = Program, .effect = Ran, .by_descendant = true},
        {.operation = Operation::EXEC_INTERPRETER, .name = "exec_interpreter", .args = {"exec", "{in}/script"},
         .code = SK_CODE_EXEC_NOT_ALLOWED, .policy = {.exec = {"{in}/script"}},
         .prepare = [](World& world) { Program(world); world.Write("{in}/script", world.Fill("#!{no}/program say\n"), 0755); },
         .effect = [](World& world, const Result& r) { return absl::StrContains(r.output, world.Fill("{in}/script")); }},
        {.operation = Operation::EXEC_SCRIPT, .name = "exec_script", .args = {"exec", "{no}/script"},
         .code = SK_CODE_EXEC_NOT_ALLOWED, .code_signal = SK_CODE_READ_NOT_ALLOWED, .policy = WithShell(),
         .prepare = [](World& world) { Script(world, "/usr/bin/dash", "{no}/script"); }, .effect = Ran,
         .also = SK_CODE_READ_NOT_ALLOWED}, // in the control run its interpreter opens it as well
        {.operation = Operation::EXEC_MEMFD, .name = "exec_memfd", .args = {"exec_memfd", "{triggers}", "say", "it ran"},
         .code = SK_CODE_EXEC_NO_PATH, .policy = {.read = {"{triggers}"}}, .effect = Ran},
        {.operation = Operation::EXEC_FEXECVE, .name = "exec_fexecve", .args = {"fexecve", "{no}/program", "say", "it ran"},
         .code = SK_CODE_EXEC_NOT_ALLOWED, .prepare = Program, .effect = Ran},
        {.operation = Operation::EXEC_PROC_FD, .name = "exec_proc_fd", .args = {"exec_proc_fd", "{no}/program", "say", "it ran"},
         .code = SK_CODE_EXEC_NOT_ALLOWED, .prepare = Program, .effect = Ran},
        {.operation = Operation::EXEC_THREAD, .name = "exec_thread", .args = {"exec_thread", "{no}/program", "say", "it ran"},
         .code = SK_CODE_EXEC_NOT_ALLOWED, .prepare = Program, .effect = Ran},
        {.operation = Operation::EXEC_DELETED, .name = "exec_deleted", .args = {"exec_deleted", "{triggers}", "{in}/copy", "say", "it ran"},
         .code = SK_CODE_EXEC_NO_PATH, .policy = {.exec = {"{in}/copy"}, .read = {"{triggers}"}}, .effect = Ran},
        {.operation = Operation::EXEC_UNFAULTED, .name = "exec_unfaulted", .args = {"exec_unfaulted", "{in}/name", "{no}/program", "say", "it ran"},
         .code = SK_CODE_EXEC_NOT_ALLOWED,
         .prepare = [](World& world) { Program(world); world.Write("{in}/name", world.Fill("{no}/program") + std::string(1, '\0')); }, .effect = Ran},
        {.operation = Operation::EXEC_LD_SO, .name = "exec_ld_so", .args = {"exec", "{loader}", "{no}/echo", "it ran"},
         .code = SK_CODE_READ_NOT_ALLOWED, .policy = WithLoader(), .prepare = Loader, .effect = Ran, .by_descendant = true},
        {.operation = Operation::EXEC_LD_SO, .name = "exec_ld_so_readable", .args = {"exec", "{loader}", "{in}/echo", "it ran"},
         .code = SK_CODE_MAP_NOT_ALLOWED, .policy = WithLoader(),
         .prepare = [](World& world) { Loader(world); world.Copy("/usr/bin/echo", "{in}/echo"); }, .effect = Ran, .by_descendant = true},
        {.operation = Operation::EXEC_MMAP, .name = "exec_mmap", .args = {"map_code", "{in}/file"}, .code = SK_CODE_MAP_NOT_ALLOWED},
        {.operation = Operation::EXEC_MPROTECT, .name = "exec_mprotect", .args = {"mprotect_code", "{in}/file"}, .code = SK_CODE_MAP_NOT_ALLOWED},
    };
    // A program that an observed policy lets start is then mapped as code.
    for (Case& c : cases)
        if (!c.also) c.also = SK_CODE_MAP_NOT_ALLOWED;
    return cases;
}

}  // namespace stockade::live
