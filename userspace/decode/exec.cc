#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/decode/payload.h"
#include "userspace/model/text.h"

namespace stockade::decode {
namespace {

std::vector<std::string> SplitArgv(absl::string_view bytes) {
    std::vector<std::string> argv;
    while (!bytes.empty()) {
        const size_t end = bytes.find('\0');
        argv.emplace_back(bytes.substr(0, end));
        if (end == bytes.npos) break;
        bytes.remove_prefix(end + 1);
    }
    return argv;
}

void SetArgv(const sk_exec& record, v1::Exec* exec) {
    const std::vector<std::string> argv = SplitArgv({record.argv, record.argv_len});
    bool escape = false;
    for (const std::string& argument : argv) escape = escape || !model::IsPrintable(argument);
    for (const std::string& argument : argv) {
        std::string* out = exec->add_argv();
        if (model::AppendEscaped(argument, out) || !escape) continue;
        // One flag for all: backslashes of the others are doubled too.
        out->clear();
        for (char c : argument) out->append(c == '\\' ? 2 : 1, c);
    }
    exec->set_argv_escaped(escape);
}

}  // namespace

Status DecodePayload(const sk_exec& record, Context& context, v1::Event* event) {
    if (record.argv_len > SK_ARGV_BYTES) {
        return context.Fail(Reason::STRING, absl::StrCat("argv of ", record.argv_len, " bytes"));
    }
    v1::Exec* exec = event->mutable_exec();
    SK_RETURN_IF_ERROR(
        DecodePath(record.path, context, exec->mutable_path(), exec->mutable_path_detail()));
    SK_ASSIGN_OR_RETURN(const absl::string_view role,
                        Word(model::ExecRoles(), record.role, "exec role", context));
    exec->set_role(std::string(role));
    exec->set_argc(record.argc);
    exec->set_argv_truncated(record.argv_truncated != 0);
    exec->set_parent_pid(record.parent_tgid);
    exec->set_parent_start_boot_ns(record.parent_start_boot_ns);
    if (record.old_tid != record.head.tgid) exec->set_old_tid(record.old_tid);
    SetArgv(record, exec);
    return absl::OkStatus();
}

}  // namespace stockade::decode
