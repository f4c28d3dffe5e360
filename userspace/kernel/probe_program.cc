// Program types, helpers, kfuncs and maps, each asked of the verifier with one tiny program.
// By hand and not by an object each: libbpf reads the kernel's BTF anew for every object,
// which is most of the time of a probe.
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <linux/bpf.h>

#include <memory>
#include <span>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/errno.h"
#include "userspace/kernel/probe_parts.h"

namespace stockade::kernel::probe {
namespace {

// BPF_CGROUP_UNIX_CONNECT and _SENDMSG, since 6.7 (859051dd165e): not in the headers of 6.1.
constexpr int kCgroupUnixConnect = 49;
constexpr int kCgroupUnixSendmsg = 50;
// Objects of the probe carry this prefix, so that a test can look for what is left.
constexpr char kName[] = "skc_probe";
// Enough for the verdict on programs of a dozen instructions.
constexpr size_t kLogBytes = 16384;

bpf_insn Op(uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm) {
    bpf_insn insn{};
    insn.code = code;
    insn.dst_reg = dst;
    insn.src_reg = src;
    insn.off = off;
    insn.imm = imm;
    return insn;
}
bpf_insn MovImm(uint8_t dst, int32_t imm) { return Op(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, imm); }
bpf_insn Mov(uint8_t dst, uint8_t src) { return Op(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0); }
bpf_insn Call(int32_t helper) { return Op(BPF_JMP | BPF_CALL, 0, 0, 0, helper); }
bpf_insn CallKfunc(int32_t id) {
    return Op(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_KFUNC_CALL, 0, id);
}
bpf_insn JumpIfZero(uint8_t reg, int16_t off) { return Op(BPF_JMP | BPF_JEQ | BPF_K, reg, 0, off, 0); }
bpf_insn Exit() { return Op(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }

using Code = std::vector<bpf_insn>;

// Ends a program with a result that every type used here allows.
Code Return(Code code, int result) {
    code.push_back(MovImm(0, result));
    code.push_back(Exit());
    return code;
}

struct BtfFree {
    void operator()(btf* b) const { btf__free(b); }
};
using BtfPtr = std::unique_ptr<btf, BtfFree>;

struct Kind {
    bpf_prog_type type;
    int attach_type = -1;          // -1 = none
    const char* target = nullptr;  // what it attaches to, in the kernel's BTF
    uint32_t target_kind = BTF_KIND_FUNC;
    int result = 0;
};

constexpr Kind kTpBtf{BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP, "btf_trace_sched_process_exec",
                      BTF_KIND_TYPEDEF};
constexpr Kind kFexit{BPF_PROG_TYPE_TRACING, BPF_TRACE_FEXIT, "security_socket_sendmsg"};
constexpr Kind kIterTask{BPF_PROG_TYPE_TRACING, BPF_TRACE_ITER, "bpf_iter_task"};
constexpr Kind kLsm{BPF_PROG_TYPE_LSM, BPF_LSM_MAC, "bpf_lsm_file_open"};
// The attach point must be one that works on a socket or on current; its result 1 = allow.
constexpr Kind kLsmCgroup{BPF_PROG_TYPE_LSM, BPF_LSM_CGROUP, "bpf_lsm_socket_create",
                          BTF_KIND_FUNC, 1};
constexpr Kind kConnect4{BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_CONNECT, nullptr,
                         BTF_KIND_FUNC, 1};
constexpr Kind kSockCreate{BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE, nullptr,
                           BTF_KIND_FUNC, 1};
constexpr Kind kSkb{BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS, nullptr, BTF_KIND_FUNC, 1};
constexpr Kind kSocketFilter{BPF_PROG_TYPE_SOCKET_FILTER};
constexpr Kind kSyscall{BPF_PROG_TYPE_SYSCALL};

// The verifier's last word, without its statistics.
std::string LastWord(absl::string_view log) {
    std::string last;
    for (absl::string_view line : absl::StrSplit(log, '\n')) {
        line = absl::StripAsciiWhitespace(line);
        if (line.empty() || absl::StartsWith(line, "processed ") ||
            absl::StartsWith(line, "verification time")) {
            continue;
        }
        last = std::string(line);
    }
    return last;
}

class Loader {
  public:
    Loader() : vmlinux_(btf__load_vmlinux_btf()) {}

    bool HasHook(const char* hook) const {
        return vmlinux_ && btf__find_by_name_kind(vmlinux_.get(), hook, BTF_KIND_FUNC) > 0;
    }
    int32_t IdOf(const char* name, uint32_t kind = BTF_KIND_FUNC) const {
        return vmlinux_ ? btf__find_by_name_kind(vmlinux_.get(), name, kind) : -ENOENT;
    }
    Status HasBtf() const {
        return vmlinux_ ? absl::OkStatus()
                        : ErrnoStatus(errno ? errno : ENOENT, "read /sys/kernel/btf/vmlinux");
    }

    Status Load(const Kind& kind, const Code& body) const {
        Code code = Return(body, kind.result);
        LIBBPF_OPTS(bpf_prog_load_opts, options);
        std::vector<char> log(kLogBytes);
        options.log_buf = log.data();
        options.log_size = log.size();
        options.log_level = 1;
        if (kind.attach_type >= 0) {
            options.expected_attach_type = static_cast<bpf_attach_type>(kind.attach_type);
        }
        if (kind.type == BPF_PROG_TYPE_SYSCALL) options.prog_flags = BPF_F_SLEEPABLE;
        if (kind.target != nullptr) {
            int32_t id = IdOf(kind.target, kind.target_kind);
            if (id <= 0) return absl::NotFoundError(absl::StrCat("no ", kind.target, " in its BTF"));
            options.attach_btf_id = static_cast<uint32_t>(id);
        }
        Fd fd(bpf_prog_load(kind.type, kName, "Dual BSD/GPL", code.data(), code.size(), &options));
        if (fd.ok()) return absl::OkStatus();
        int error = errno;
        std::string word = LastWord(log.data());
        // Seen on a vendor's kernel: some types are refused to root, BTF and all.
        if (word.empty() && error == EPERM) word = "refused, though BTF has what it needs";
        return ErrnoStatus(error, absl::StrCat("load", word.empty() ? "" : ": ", word));
    }

    Status LoadKfunc(const Kind& kind, const char* kfunc, const std::function<Code(int32_t)>& body) const {
        int32_t id = IdOf(kfunc);
        if (id <= 0) return absl::NotFoundError(absl::StrCat("no ", kfunc, " in its BTF"));
        return Load(kind, body(id));
    }

  private:
    BtfPtr vmlinux_;
};

StatusOr<Fd> CreateMap(bpf_map_type type, uint32_t key, uint32_t value, uint32_t entries,
                       const bpf_map_create_opts* options = nullptr) {
    Fd fd(bpf_map_create(type, kName, key, value, entries, options));
    if (!fd.ok()) return ErrnoStatus(errno, "create");
    return fd;
}

StatusOr<Fd> CreateTaskStorage() {
    BtfPtr types(btf__new_empty());
    if (!types) return absl::ResourceExhaustedError("no memory for BTF");
    int key = btf__add_int(types.get(), "int", 4, BTF_INT_SIGNED);
    int value = btf__add_int(types.get(), "u64", 8, 0);
    int loaded = btf__load_into_kernel(types.get());
    if (loaded != 0) return NegErrnoStatus(loaded, "load BTF");
    LIBBPF_OPTS(bpf_map_create_opts, options);
    options.map_flags = BPF_F_NO_PREALLOC;
    options.btf_fd = static_cast<uint32_t>(btf__fd(types.get()));
    options.btf_key_type_id = static_cast<uint32_t>(key);
    options.btf_value_type_id = static_cast<uint32_t>(value);
    return CreateMap(BPF_MAP_TYPE_TASK_STORAGE, 4, 8, 0, &options);
}

// current's storage, made if it is not there.
Code UseTaskStorage(int map_fd) {
    return {Call(BPF_FUNC_get_current_task_btf),
            Mov(2, 0),
            Op(BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_FD, 0, map_fd),
            Op(0, 0, 0, 0, 0),
            MovImm(3, 0),
            MovImm(4, BPF_LOCAL_STORAGE_GET_F_CREATE),
            Call(BPF_FUNC_task_storage_get)};
}

void FillTaskStorage(const Loader& loader, ProbeReport& report) {
    auto map = CreateTaskStorage();
    if (!map.ok()) {
        Set(report, Feature::MAP_TASK_STORAGE, map.status());
        Set(report, Feature::MAP_TASK_STORAGE_CGROUP, map.status());
        return;
    }
    Set(report, Feature::MAP_TASK_STORAGE, loader.Load(kTpBtf, UseTaskStorage(map->get())));
    Set(report, Feature::MAP_TASK_STORAGE_CGROUP,
        loader.Load(kConnect4, UseTaskStorage(map->get())));
}

struct Point {
    int type;
    const char* name;
};

Status LoadSockAddr(const Loader& loader, std::span<const Point> points) {
    for (const Point& point : points) {
        Kind kind = kConnect4;
        kind.attach_type = point.type;
        SK_RETURN_IF_ERROR(Annotate(loader.Load(kind, {}), point.name));
    }
    return absl::OkStatus();
}

void FillSockAddr(const Loader& loader, ProbeReport& report) {
    constexpr Point kInet[] = {
        {BPF_CGROUP_INET4_CONNECT, "connect4"}, {BPF_CGROUP_INET6_CONNECT, "connect6"},
        {BPF_CGROUP_UDP4_SENDMSG, "sendmsg4"},  {BPF_CGROUP_UDP6_SENDMSG, "sendmsg6"},
        {BPF_CGROUP_INET4_BIND, "bind4"},       {BPF_CGROUP_INET6_BIND, "bind6"},
    };
    constexpr Point kUnix[] = {{kCgroupUnixConnect, "connect_unix"},
                               {kCgroupUnixSendmsg, "sendmsg_unix"}};
    Set(report, Feature::PROG_SOCK_ADDR, LoadSockAddr(loader, kInet));
    Set(report, Feature::PROG_UNIX_ADDR, LoadSockAddr(loader, kUnix));
}

void FillMaps(ProbeReport& report) {
    Set(report, Feature::MAP_RINGBUF,
        CreateMap(BPF_MAP_TYPE_RINGBUF, 0, 0, static_cast<uint32_t>(getpagesize())).status());
    LIBBPF_OPTS(bpf_map_create_opts, options);
    options.map_flags = BPF_F_INNER_MAP | BPF_F_RDONLY_PROG;
    Set(report, Feature::MAP_INNER_ARRAY,
        CreateMap(BPF_MAP_TYPE_ARRAY, 4, 256, 4, &options).status());
}

void FillHelpers(const Loader& loader, ProbeReport& report) {
    Set(report, Feature::HELPER_CURRENT_TASK_BTF,
        loader.Load(kTpBtf, {Call(BPF_FUNC_get_current_task_btf)}));
    Set(report, Feature::HELPER_SEND_SIGNAL,
        loader.Load(kTpBtf, {MovImm(1, 0), Call(BPF_FUNC_send_signal)}));
    // 0 rounds, so any callback will do; there is none to name without a second function. The
    // verifier knows the helper or does not before it looks at the arguments.
    Status loop = loader.Load(kTpBtf, {Call(BPF_FUNC_loop)});
    bool unknown = absl::StrContains(loop.message(), "func") &&
                   (absl::StrContains(loop.message(), "unknown") ||
                    absl::StrContains(loop.message(), "invalid"));
    Set(report, Feature::HELPER_LOOP,
        unknown || !report.has(Feature::PROG_TP_BTF) ? loop : absl::OkStatus());
    Set(report, Feature::MEMCG_ACCOUNTING,
        loader.Load(kSocketFilter, {Call(BPF_FUNC_ktime_get_coarse_ns)}));
    int32_t task = loader.IdOf("task_struct", BTF_KIND_STRUCT);
    Set(report, Feature::KFUNC_RDONLY_CAST,
        loader.LoadKfunc(kTpBtf, "bpf_rdonly_cast", [&](int32_t id) -> Code {
            return {MovImm(1, 0), MovImm(2, task), CallKfunc(id)};
        }));
    int32_t release = loader.IdOf("bpf_task_release");
    Set(report, Feature::KFUNC_TASK_FROM_PID,
        loader.LoadKfunc(kTpBtf, "bpf_task_from_pid", [&](int32_t id) -> Code {
            return {MovImm(1, 1), CallKfunc(id), JumpIfZero(0, 2), Mov(1, 0), CallKfunc(release)};
        }));
}

void FillHooks(const Loader& loader, ProbeReport& report) {
    struct Row {
        Feature feature;
        const char* hook;
    };
    constexpr Row kRows[] = {
        {Feature::LSM_PATH_HOOKS, "bpf_lsm_path_unlink"},
        {Feature::LSM_NETWORK_HOOKS, "bpf_lsm_socket_sendmsg"},
        {Feature::LSM_USERNS_HOOK, "bpf_lsm_userns_create"},
        {Feature::LSM_ANON_INODE_HOOK, "bpf_lsm_inode_init_security_anon"},
    };
    for (const Row& row : kRows) {
        Set(report, row.feature,
            loader.HasHook(row.hook)
                ? absl::OkStatus()
                : absl::NotFoundError(absl::StrCat("no ", row.hook, " in its BTF")));
    }
}

}  // namespace

void FillPrograms(ProbeReport& report) {
    Loader loader;
    Set(report, Feature::BTF, loader.HasBtf());
    Set(report, Feature::PROG_TP_BTF, loader.Load(kTpBtf, {}));
    Set(report, Feature::PROG_FEXIT, loader.Load(kFexit, {}));
    Set(report, Feature::PROG_ITER_TASK, loader.Load(kIterTask, {}));
    Set(report, Feature::PROG_SYSCALL, loader.Load(kSyscall, {}));
    FillSockAddr(loader, report);
    Set(report, Feature::PROG_SOCK_CREATE, loader.Load(kSockCreate, {}));
    Set(report, Feature::PROG_CGROUP_SKB, loader.Load(kSkb, {}));
    Set(report, Feature::PROG_LSM, loader.Load(kLsm, {}));
    Set(report, Feature::PROG_LSM_CGROUP, loader.Load(kLsmCgroup, {}));
    FillMaps(report);
    FillTaskStorage(loader, report);
    FillHelpers(loader, report);
    FillHooks(loader, report);
}

}  // namespace stockade::kernel::probe
