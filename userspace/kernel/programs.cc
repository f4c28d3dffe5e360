#include "userspace/kernel/programs.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "bpf/guard_bpf.skel.h"
#include "userspace/base/errno.h"
#include "userspace/base/sha256.h"
#include "userspace/kernel/attach.h"

namespace stockade::kernel {
namespace {

// The last words of libbpf and the verifier, for the Status of a failed load. One load at a time.
thread_local std::string g_last_words;
constexpr size_t kMaxLastWords = 4096;  // the end of a verifier log says what was wrong

int KeepLastWords(enum libbpf_print_level level, const char* format, va_list args) {
    if (level != LIBBPF_WARN) return 0;
    // libbpf hands a whole verifier log over at once.
    char* line = nullptr;
    int n = vasprintf(&line, format, args);
    if (n < 0) return 0;
    g_last_words.append(line, static_cast<size_t>(n));
    free(line);
    if (g_last_words.size() > kMaxLastWords) g_last_words.erase(0, g_last_words.size() - kMaxLastWords);
    return n;
}

Status WithLastWords(int result, absl::string_view tried) {
    Status status = NegErrnoStatus(result, tried);
    if (status.ok()) return status;
    return Status(status.code(), absl::StrCat(status.message(), "\n", g_last_words));
}

bool IsLsm(const bpf_program* program) { return absl::StartsWith(bpf_program__section_name(program), "lsm"); }
bool IsCgroup(const bpf_program* program) {
    return absl::StartsWith(bpf_program__section_name(program), "cgroup");  // and cgroup_skb
}
// Hooks come and go between kernels; the probe tells which are missing and what that means.
bool KernelHasHook(const btf* kernel, const bpf_program* program) {
    absl::string_view section = bpf_program__section_name(program);
    std::string function;
    if (absl::ConsumePrefix(&section, "lsm/")) function = absl::StrCat("bpf_lsm_", section);
    if (absl::ConsumePrefix(&section, "fexit/")) function = std::string(section);
    return function.empty() || btf__find_by_name_kind(kernel, function.c_str(), BTF_KIND_FUNC) > 0;
}
// What `signal` sees where `lsm` refuses.
bool IsFexit(const bpf_program* program) { return absl::StartsWith(bpf_program__section_name(program), "fexit/"); }
// Programs that judge or count at a tracepoint come in two kinds: docs/adr/0006-preempted-tracepoints.md.
bool IsClassic(const bpf_program* program) { return absl::StartsWith(bpf_program__section_name(program), "tp/"); }
bool HasClassic(const bpf_program* program) {
    const absl::string_view section = bpf_program__section_name(program);
    return section == "tp_btf/sys_exit" || section == "tp_btf/sched_process_exec" || section == "tp_btf/sched_process_exit";
}
bool IsCalls(const bpf_program* program) { return absl::EndsWith(bpf_program__section_name(program), "/sys_exit"); }
bool IsAlways(const bpf_program* program) {
    const bool tracepoint = IsClassic(program) || absl::StartsWith(bpf_program__section_name(program), "tp_btf/");
    return IsLsm(program) || IsFexit(program) || (tracepoint && !IsCalls(program));
}

// A helper is there for some program types and not for others. Only a load tells: libbpf_probe_bpf_helper
// of 1.4 goes by the verifier's words, which 6.11 changed, and then says yes to everything.
bool MaySignal(bpf_prog_type type, bpf_attach_type attach) {
    const bpf_insn program[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .src_reg = 0, .off = 0, .imm = 9},
        {.code = BPF_JMP | BPF_CALL, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = BPF_FUNC_send_signal},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .src_reg = 0, .off = 0, .imm = 1},
        {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
    };
    LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = attach);
    Fd fd(bpf_prog_load(type, "may_signal", "GPL", program, std::size(program), &options));
    return fd.ok();
}

// Where a set's programs are pinned, and under which name their words that the agent writes.
constexpr char kContentPrefix[] = "programs_";
constexpr char kBss[] = "bss";

// Whatever a program of the set depends on that may be another at the next start. The kernel is not in it: bpffs ends with it.
std::string ContentOf(const guard_bpf& skeleton, const std::string& set_id,
                      const Programs::Options& options) {
    const absl::string_view constants(reinterpret_cast<const char*>(skeleton.rodata),
                                      sizeof(*skeleton.rodata));
    return Sha256Hex(absl::StrCat(set_id, options.classic ? " classic" : " ",
                                  options.follows ? " follows " : " ", constants))
        .substr(0, 16);
}

// Data sections belong to a set of programs and are never shared between two.
bool IsShared(const bpf_map* map) { return !absl::StrContains(bpf_map__name(map), '.'); }

}  // namespace

StatusOr<std::unique_ptr<Programs>> Programs::Load(const Options& options) {
    libbpf_set_print(KeepLastWords);
    g_last_words.clear();
    std::unique_ptr<Programs> programs(new Programs());
    programs->backend_ = options.backend;
    programs->skeleton_ = guard_bpf__open();
    if (!programs->skeleton_) return WithLastWords(-errno, "open the BPF object");
    size_t size = 0;
    const void* bytes = guard_bpf__elf_bytes(&size);
    programs->set_id_ = Sha256Hex({static_cast<const char*>(bytes), size}).substr(0, 16);
    auto* rodata = programs->skeleton_->rodata;
    rodata->keys.k1 = options.keys.k1;
    rodata->keys.k2 = options.keys.k2;
    rodata->keys.seed = options.keys.seed;
    rodata->backend = options.backend == Backend::kLsm ? SK_BACKEND_LSM : SK_BACKEND_SIGNAL;
    rodata->program_set = static_cast<uint8_t>(std::stoul(programs->set_id_.substr(0, 2), nullptr, 16));
    rodata->cgroup_signal = MaySignal(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_CONNECT) &&
                            MaySignal(BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE);
    programs->content_ = ContentOf(*programs->skeleton_, programs->set_id_, options);
    if (programs->Keep(options)) return programs;
    std::unique_ptr<btf, decltype(&btf__free)> kernel(btf__load_vmlinux_btf(), btf__free);
    if (!kernel) return ErrnoStatus(errno, "read the kernel's BTF");
    const bool follows = options.backend == Backend::kSignal && options.follows;
    bpf_program* program;
    bpf_object__for_each_program(program, programs->object()) {
        bool wanted = KernelHasHook(kernel.get(), program) && (options.backend == Backend::kLsm || !IsLsm(program)) &&
                      (options.backend == Backend::kSignal || !IsCalls(program)) && (follows || !IsFexit(program)) && !(options.classic ? HasClassic(program) : IsClassic(program));
        bpf_program__set_autoload(program, wanted);
    }
    bpf_map* map;
    bpf_object__for_each_map(map, programs->object()) {
        if (options.reuse_maps_dir.empty() || !IsShared(map)) continue;
        std::string path = absl::StrCat(options.reuse_maps_dir, "/", bpf_map__name(map));
        Fd fd(bpf_obj_get(path.c_str()));
        if (!fd.ok()) return ErrnoStatus(errno, absl::StrCat("open the pinned map ", path));
        SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map__reuse_fd(map, fd.get()), absl::StrCat("reuse ", path)));
    }
    SK_RETURN_IF_ERROR(WithLastWords(guard_bpf__load(programs->skeleton_), "load the BPF programs"));
    return programs;
}

bool Programs::Keep(const Options& options) {
    for (const std::string& set_dir : options.earlier_sets) {
        const std::string programs = absl::StrCat(set_dir, "/", content_name());
        if (access(programs.c_str(), F_OK) != 0) continue;
        if (kept_programs_.empty() && !KeepFrom(programs, options.reuse_maps_dir)) continue;
        lenders_.push_back(set_dir);
    }
    return kept();
}

// False where one of them cannot be had: all or none.
bool Programs::KeepFrom(const std::string& programs_dir, const std::string& maps_dir) {
    const auto take = [](const std::string& path, const char* name, auto* taken) {
        Fd fd(bpf_obj_get(absl::StrCat(path, "/", name).c_str()));
        if (!fd.ok()) return errno;
        taken->emplace(name, std::move(fd));
        return 0;
    };
    bool all = take(programs_dir, kBss, &kept_maps_) == 0;
    bpf_program* program;
    bpf_object__for_each_program(program, object()) {
        // One that is not there was not loaded: the directory was published whole.
        const int error = take(programs_dir, bpf_program__name(program), &kept_programs_);
        all = all && (error == 0 || error == ENOENT);
    }
    bpf_map* map;
    bpf_object__for_each_map(map, object()) {
        if (IsShared(map)) all = all && take(maps_dir, bpf_map__name(map), &kept_maps_) == 0;
    }
    if (all && !kept_programs_.empty()) return true;
    kept_programs_.clear();
    kept_maps_.clear();
    return false;
}

std::string Programs::content_name() const { return absl::StrCat(kContentPrefix, content_); }

std::vector<std::pair<std::string, int>> Programs::Lendable() const {
    std::vector<std::pair<std::string, int>> out = {{kBss, Bss()}};
    bpf_program* program;
    bpf_object__for_each_program(program, object()) {
        const char* name = bpf_program__name(program);
        if (ProgramFd(name) >= 0) out.emplace_back(name, ProgramFd(name));
    }
    return out;
}

Programs::~Programs() {
    links_.clear();
    if (skeleton_) guard_bpf__destroy(skeleton_);
}

bpf_object* Programs::object() const { return skeleton_->obj; }

bpf_program* Programs::Program(const char* name) const { return bpf_object__find_program_by_name(object(), name); }

int Programs::MapFd(const char* name) const {
    if (kept()) {
        const auto found = kept_maps_.find(absl::string_view(name));
        return found != kept_maps_.end() ? found->second.get() : -1;
    }
    bpf_map* map = bpf_object__find_map_by_name(object(), name);
    return map ? bpf_map__fd(map) : -1;
}

uint32_t Programs::MapValueBytes(const char* name) const {
    bpf_map* map = bpf_object__find_map_by_name(object(), name);
    return map ? bpf_map__value_size(map) : 0;
}

int Programs::ProgramFd(const char* name) const {
    if (kept()) {
        const auto found = kept_programs_.find(absl::string_view(name));
        return found != kept_programs_.end() ? found->second.get() : -1;
    }
    bpf_program* program = Program(name);
    return program ? bpf_program__fd(program) : -1;
}

int Programs::Bss() const {
    return kept() ? kept_maps_.find(kBss)->second.get() : bpf_map__fd(skeleton_->maps.bss);
}

Status Programs::SetPresentSlot(uint32_t slot) {
    auto* bss = skeleton_->bss;
    const size_t bytes = sizeof(*bss);
    void* shared = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, Bss(), 0);
    if (shared == MAP_FAILED) return ErrnoStatus(errno, "map the word that iterators read");
    static_cast<decltype(bss)>(shared)->present_slot = slot;
    (void)munmap(shared, bytes);  // nothing is written by it
    return absl::OkStatus();
}

// The link that a lender has under this name stands already; a second one of the same program would judge, and tell, twice.
StatusOr<Fd> Programs::Attach(const bpf_program* program, int cgroup_fd, const std::string& pin) {
    for (const std::string& set_dir : lenders_) {
        Fd link(bpf_obj_get(absl::StrCat(set_dir, "/", pin).c_str()));
        if (link.ok() && StandsOn(link.get(), cgroup_fd)) return link;
    }
    const char* name = bpf_program__name(program);
    StatusOr<Fd> link = AttachProgram(program, ProgramFd(name), cgroup_fd);
    if (!link.ok()) return Annotate(link.status(), absl::StrCat("attach ", name));
    return link;
}

Status Programs::AttachAll() {
    bpf_program* program;
    bpf_object__for_each_program(program, object()) {
        const char* name = bpf_program__name(program);
        if (!IsAlways(program) || ProgramFd(name) < 0) continue;
        auto link = Attach(program, -1, name);
        if (!link.ok()) {
            links_.clear();
            return link.status();
        }
        links_.emplace_back(name, *std::move(link));
    }
    return absl::OkStatus();
}

StatusOr<std::vector<std::pair<std::string, Fd>>> Programs::AttachCalls() {
    std::vector<std::pair<std::string, Fd>> links;
    bpf_program* program;
    bpf_object__for_each_program(program, object()) {
        const char* name = bpf_program__name(program);
        if (!IsCalls(program) || ProgramFd(name) < 0) continue;
        SK_ASSIGN_OR_RETURN(Fd link, Attach(program, -1, name));
        links.emplace_back(name, std::move(link));
    }
    return links;
}

StatusOr<std::vector<Fd>> Programs::AttachCgroup(int cgroup_fd, const std::string& pin) {
    std::vector<Fd> links;
    bpf_program* program;
    bpf_object__for_each_program(program, object()) {
        if (!IsCgroup(program)) continue;
        SK_ASSIGN_OR_RETURN(Fd link, Attach(program, cgroup_fd, absl::StrCat(pin, links.size())));
        links.push_back(std::move(link));
    }
    return links;
}

}  // namespace stockade::kernel
