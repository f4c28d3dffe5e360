// --seccomp FILE: the "linux.seccomp" object of the OCI runtime specification, as Docker and
// Podman take it. Parsed with protobuf's JSON reader into a Struct: bounded depth, no exceptions.
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <seccomp.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/errno.h"
#include "userspace/launch/json_syntax.h"
#include "userspace/launch/seccomp.h"
#include "userspace/launch/seccomp_context.h"

namespace stockade::launch {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

constexpr int kMaxRules = 4096;  // names times conditions; Docker's profile has 400

Status Bad(absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("seccomp profile: ", what));
}

// A key that nobody reads would be a rule that nobody applies.
Status CheckKeys(const Struct& object, absl::string_view what, const std::vector<std::string>& known) {
    for (const auto& [key, value] : object.fields()) {
        if (std::find(known.begin(), known.end(), key) != known.end()) continue;
        return Bad(absl::StrCat("unknown key \"", key.substr(0, 64), "\" in ", what, "; known are ",
                                absl::StrJoin(known, ", ")));
    }
    return absl::OkStatus();
}

// Newer than Debian 12's libseccomp knows by name; one number on all architectures.
constexpr std::pair<const char*, int> kNewerCalls[] = {
    {"cachestat", 451},         {"fchmodat2", 452},         {"map_shadow_stack", 453}, {"futex_wake", 454},
    {"futex_wait", 455},        {"futex_requeue", 456},     {"statmount", 457},        {"listmount", 458},
    {"lsm_get_self_attr", 459}, {"lsm_set_self_attr", 460}, {"lsm_list_modules", 461}, {"mseal", 462},
    {"setxattrat", 463},        {"getxattrat", 464},        {"listxattrat", 465},      {"removexattrat", 466},
    {"open_tree_attr", 467},    {"file_getattr", 468},      {"file_setattr", 469},     {"listns", 470}};
// Of other architectures, which libseccomp does not know by name either.
constexpr const char* kForeignCalls[] = {"riscv_hwprobe", "riscv_flush_icache", "uretprobe", "uprobe"};

// Negative for a call of another architecture; nullopt for a name that no kernel has.
std::optional<int> CallNumber(const std::string& name) {
    const int number = seccomp_syscall_resolve_name(name.c_str());
    if (number != __NR_SCMP_ERROR) return number;
    for (const auto& [newer, its_number] : kNewerCalls) {
        if (name == newer) return its_number;
    }
    for (const char* foreign : kForeignCalls) {
        if (name == foreign) return -1;
    }
    return std::nullopt;
}

const Value* Find(const Struct& object, const char* key) {
    auto it = object.fields().find(key);
    return it == object.fields().end() || it->second.has_null_value() ? nullptr : &it->second;
}

StatusOr<uint64_t> Number(const Struct& object, const char* key, uint64_t absent) {
    const Value* value = Find(object, key);
    if (value == nullptr) return absent;
    double number = value->number_value();
    // Beyond 2^53 a JSON number is no longer exact.
    if (!value->has_number_value() || number < 0 || number > 9007199254740992.0) {
        return Bad(absl::StrCat(key, " is not a whole number"));
    }
    return static_cast<uint64_t>(number);
}

StatusOr<uint32_t> Action(const Struct& object, const char* key, const char* error_key) {
    const Value* value = Find(object, key);
    if (value == nullptr) return Bad(absl::StrCat(key, " is missing"));
    SK_ASSIGN_OR_RETURN(uint64_t error, Number(object, error_key, EPERM));
    if (error > 4095) return Bad(absl::StrCat(error_key, " is no errno"));
    const std::string& name = value->string_value();
    if (name == "SCMP_ACT_ALLOW") return SCMP_ACT_ALLOW;
    if (name == "SCMP_ACT_LOG") return SCMP_ACT_LOG;
    if (name == "SCMP_ACT_ERRNO") return SCMP_ACT_ERRNO(static_cast<uint16_t>(error));
    if (name == "SCMP_ACT_KILL" || name == "SCMP_ACT_KILL_THREAD") return SCMP_ACT_KILL;
    if (name == "SCMP_ACT_KILL_PROCESS") return SCMP_ACT_KILL_PROCESS;
    if (name == "SCMP_ACT_TRAP") return SCMP_ACT_TRAP;
    // TRACE and NOTIFY need a supervisor, which would decide in place of the policy.
    return Bad(absl::StrCat("action \"", name, "\" is not supported"));
}

StatusOr<scmp_compare> Compare(const std::string& name) {
    static constexpr struct {
        const char* name;
        scmp_compare op;
    } kOps[] = {{"SCMP_CMP_NE", SCMP_CMP_NE},
                {"SCMP_CMP_LT", SCMP_CMP_LT},
                {"SCMP_CMP_LE", SCMP_CMP_LE},
                {"SCMP_CMP_EQ", SCMP_CMP_EQ},
                {"SCMP_CMP_GE", SCMP_CMP_GE},
                {"SCMP_CMP_GT", SCMP_CMP_GT},
                {"SCMP_CMP_MASKED_EQ", SCMP_CMP_MASKED_EQ}};
    for (const auto& row : kOps) {
        if (name == row.name) return row.op;
    }
    return Bad(absl::StrCat("comparison \"", name, "\" is unknown"));
}

StatusOr<std::vector<scmp_arg_cmp>> Args(const Struct& rule) {
    std::vector<scmp_arg_cmp> args;
    const Value* list = Find(rule, "args");
    if (list == nullptr) return args;
    for (const Value& item : list->list_value().values()) {
        if (!item.has_struct_value()) return Bad("args holds no object");
        const Struct& row = item.struct_value();
        SK_RETURN_IF_ERROR(CheckKeys(row, "args", {"index", "value", "valueTwo", "op"}));
        SK_ASSIGN_OR_RETURN(uint64_t index, Number(row, "index", 6));
        SK_ASSIGN_OR_RETURN(uint64_t value, Number(row, "value", 0));
        SK_ASSIGN_OR_RETURN(uint64_t second, Number(row, "valueTwo", 0));
        const Value* op = Find(row, "op");
        if (index > 5 || op == nullptr) return Bad("args needs index 0 to 5 and op");
        SK_ASSIGN_OR_RETURN(scmp_compare compare, Compare(op->string_value()));
        args.push_back({static_cast<unsigned>(index), compare, value, second});
    }
    if (args.size() > 6) return Bad("a rule has over 6 args");
    return args;
}

// Docker's conditions. The sandbox has no capability and is of this kernel and architecture: a
// rule that asks for a capability never applies, one that excludes it always does.
bool Applies(const Struct& rule) {
    const Value* includes = Find(rule, "includes");
    if (includes != nullptr) {
        const Value* caps = Find(includes->struct_value(), "caps");
        if (caps != nullptr && caps->list_value().values_size() > 0) return false;
        const Value* arches = Find(includes->struct_value(), "arches");
        if (arches != nullptr && arches->list_value().values_size() > 0) {
#if defined(__x86_64__)
            const char* own = "amd64";
#else
            const char* own = "arm64";
#endif
            bool found = false;
            for (const Value& arch : arches->list_value().values()) found |= arch.string_value() == own;
            if (!found) return false;
        }
    }
    return true;
}

Status AddRule(const SeccompContext& context, const Struct& rule, uint32_t default_action, int* count) {
    SK_RETURN_IF_ERROR(CheckKeys(
        rule, "a rule", {"names", "action", "errnoRet", "errno", "args", "comment", "includes", "excludes"}));
    SK_ASSIGN_OR_RETURN(uint32_t action, Action(rule, "action", "errnoRet"));
    SK_ASSIGN_OR_RETURN(std::vector<scmp_arg_cmp> args, Args(rule));
    const Value* names = Find(rule, "names");
    if (names == nullptr || !names->has_list_value()) return Bad("a rule has no names");
    const bool adds = Applies(rule) && action != default_action;
    for (const Value& name : names->list_value().values()) {
        const std::optional<int> number = CallNumber(name.string_value());
        if (!number) {
            return Bad(absl::StrCat("unknown system call \"", name.string_value().substr(0, 64), "\""));
        }
        if (!adds || *number < 0) continue;
        if (++*count > kMaxRules) return Bad("over 4,096 rules");
        int rc = seccomp_rule_add_array(context.get(), action, *number, static_cast<unsigned>(args.size()),
                                        args.data());
        // libseccomp refuses the same rule twice; the first one stands.
        if (rc != 0 && rc != -EEXIST) {
            return Bad(
                absl::StrCat("rule for ", name.string_value(), ": ", NegErrnoStatus(rc, "add").message()));
        }
    }
    return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<sock_filter>> OciProfile(const std::string& json) {
    if (json.size() > kMaxOciProfileBytes) return Bad("over 1 MiB");
    if (Status syntax = CheckJsonSyntax(json); !syntax.ok()) return Bad(syntax.message());
    Struct document;
    auto parsed = google::protobuf::util::JsonStringToMessage(json, &document);
    // It quotes the place over several lines; the first one says what is wrong.
    if (!parsed.ok()) return Bad(std::string(parsed.message()).substr(0, parsed.message().find('\n')));
    const Struct* profile = &document;
    // A whole runtime configuration is taken as well.
    if (const Value* nested = Find(document, "linux")) {
        const Value* inner = Find(nested->struct_value(), "seccomp");
        if (inner == nullptr) return Bad("linux.seccomp is missing");
        profile = &inner->struct_value();
    }
    SK_RETURN_IF_ERROR(CheckKeys(*profile, "the profile",
                                 {"defaultAction", "defaultErrnoRet", "defaultErrno", "architectures",
                                  "archMap", "flags", "listenerPath", "listenerMetadata", "syscalls"}));
    SK_ASSIGN_OR_RETURN(uint32_t action, Action(*profile, "defaultAction", "defaultErrnoRet"));
    SK_ASSIGN_OR_RETURN(SeccompContext context, SeccompContext::Create(action));
    int count = 0;
    if (const Value* rules = Find(*profile, "syscalls")) {
        for (const Value& rule : rules->list_value().values()) {
            if (!rule.has_struct_value()) return Bad("syscalls holds no object");
            SK_RETURN_IF_ERROR(AddRule(context, rule.struct_value(), action, &count));
        }
    }
    return context.Export();
}

}  // namespace stockade::launch
