// The canaries: whether a verdict of ours is obeyed, seen on a child of ours.
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <elf.h>

#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bpf/canary/canary.h"
#include "bpf/canary.skel.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/kernel/probe_parts.h"

namespace stockade::kernel::probe {
namespace {

// What the canary program ends with if it runs.
constexpr int kRan = 42;
// Programs of trampolines and raw tracepoints are freed after RCU grace periods: 30 ms on idle
// hardware, seconds on a loaded emulator.
constexpr uint64_t kGoneNs = 20'000'000'000;

struct SkeletonFree {
    void operator()(canary* skeleton) const { canary__destroy(skeleton); }
};
using Skeleton = std::unique_ptr<canary, SkeletonFree>;

struct LinkFree {
    void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};
using Link = std::unique_ptr<bpf_link, LinkFree>;

// Ids of what we made, to see it gone.
struct Made {
    enum Type { kProgram, kMap, kLink } type;
    uint32_t id;
};

int OpenById(const Made& made) {
    switch (made.type) {
        case Made::kProgram: return bpf_prog_get_fd_by_id(made.id);
        case Made::kMap: return bpf_map_get_fd_by_id(made.id);
        case Made::kLink: return bpf_link_get_fd_by_id(made.id);
    }
    return -ENOENT;
}

Status WaitUntilGone(const std::vector<Made>& made) {
    static constexpr const char* kNames[] = {"program ", "map ", "link "};
    const uint64_t deadline = BootNow() + kGoneNs;
    for (;;) {
        std::vector<std::string> left;
        for (const Made& one : made) {
            Fd fd(OpenById(one));
            // Looking by id needs CAP_SYS_ADMIN. Without it, that our descriptors are closed
            // and nothing is pinned has to do.
            if (!fd.ok() && errno == EPERM) return absl::OkStatus();
            if (fd.ok()) left.push_back(absl::StrCat(kNames[one.type], one.id));
        }
        if (left.empty()) return absl::OkStatus();
        if (BootNow() > deadline) {
            return absl::InternalError(
                absl::StrCat("left behind by the probe: ", absl::StrJoin(left, ", ")));
        }
        timespec pause{0, 2'000'000};
        nanosleep(&pause, nullptr);
    }
}

void NoteLink(const bpf_link* link, std::vector<Made>& made) {
    bpf_link_info info{};
    uint32_t size = sizeof(info);
    if (bpf_obj_get_info_by_fd(bpf_link__fd(link), &info, &size) == 0) {
        made.push_back({Made::kLink, info.id});
    }
}

void NoteObject(const bpf_object* object, std::vector<Made>& made) {
    bpf_program* program;
    bpf_object__for_each_program(program, object) {
        if (bpf_program__fd(program) < 0) continue;
        bpf_prog_info info{};
        uint32_t size = sizeof(info);
        if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size) == 0) {
            made.push_back({Made::kProgram, info.id});
        }
    }
    bpf_map* map;
    bpf_object__for_each_map(map, object) {
        bpf_map_info info{};
        uint32_t size = sizeof(info);
        if (bpf_obj_get_info_by_fd(bpf_map__fd(map), &info, &size) == 0) {
            made.push_back({Made::kMap, info.id});
        }
    }
}

// A program that writes one byte to its standard output and exits with kRan, so that a single
// instruction of it shows. By hand: no file of the host can be relied on to be there.
std::vector<uint8_t> CanaryElf() {
#if defined(__x86_64__)
    const uint8_t code[] = {
        0xb8, 1, 0, 0, 0,              // mov eax, SYS_write
        0xbf, 1, 0, 0, 0,              // mov edi, 1
        0x48, 0x89, 0xe6,              // mov rsi, rsp
        0xba, 1, 0, 0, 0,              // mov edx, 1
        0x0f, 0x05,                    // syscall
        0xb8, 60, 0, 0, 0,             // mov eax, SYS_exit
        0xbf, kRan, 0, 0, 0,           // mov edi, kRan
        0x0f, 0x05,                    // syscall
    };
    constexpr Elf64_Half machine = EM_X86_64;
#elif defined(__aarch64__)
    const uint32_t code[] = {
        0xd2800020,                    // mov x0, #1
        0x910003e1,                    // mov x1, sp
        0xd2800022,                    // mov x2, #1
        0xd2800808,                    // mov x8, #SYS_write
        0xd4000001,                    // svc #0
        0xd2800000 | kRan << 5,        // mov x0, #kRan
        0xd2800ba8,                    // mov x8, #SYS_exit
        0xd4000001,                    // svc #0
    };
    constexpr Elf64_Half machine = EM_AARCH64;
#else
#error "the canary program is written for x86_64 and arm64"
#endif
    constexpr uint64_t base = 0x400000;
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_EXEC;
    header.e_machine = machine;
    header.e_version = EV_CURRENT;
    header.e_entry = base + sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr);
    header.e_phoff = sizeof(Elf64_Ehdr);
    header.e_ehsize = sizeof(Elf64_Ehdr);
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    Elf64_Phdr segment{};
    segment.p_type = PT_LOAD;
    segment.p_flags = PF_R | PF_X;
    segment.p_vaddr = segment.p_paddr = base;
    segment.p_filesz = segment.p_memsz = sizeof(header) + sizeof(segment) + sizeof(code);
    segment.p_align = 0x10000;  // arm64 kernels may have pages of 64 KiB
    std::vector<uint8_t> file(segment.p_filesz);
    std::memcpy(file.data(), &header, sizeof(header));
    std::memcpy(file.data() + sizeof(header), &segment, sizeof(segment));
    std::memcpy(file.data() + sizeof(header) + sizeof(segment), code, sizeof(code));
    return file;
}

StatusOr<Fd> CanaryProgram() {
    constexpr unsigned kMfdExec = 0x10;  // since 6.3, where vm.memfd_noexec may ask for it
    Fd file(memfd_create("stockade-canary", MFD_CLOEXEC | kMfdExec));
    if (!file.ok() && errno == EINVAL) file.Reset(memfd_create("stockade-canary", MFD_CLOEXEC));
    if (!file.ok()) return ErrnoStatus(errno, "memfd_create");
    std::vector<uint8_t> elf = CanaryElf();
    SK_RETURN_IF_ERROR(WriteAll(
        file.get(), absl::string_view(reinterpret_cast<const char*>(elf.data()), elf.size())));
    return file;
}

// One run of the canary program in the cgroup: its wait status, and whether it wrote its byte.
struct ExecRun {
    int status = 0;
    bool wrote = false;
};
StatusOr<ExecRun> RunExec(const ThrowAwayCgroup& cgroup, const Fd& program) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
    Fd out(ends[0]), in(ends[1]);
    char* no_strings[] = {nullptr};
    SK_ASSIGN_OR_RETURN(int status, cgroup.Run([&] {
        if (dup2(in.get(), STDOUT_FILENO) < 0) return 1;
        syscall(SYS_execveat, program.get(), "", no_strings, no_strings, AT_EMPTY_PATH);
        return 1;
    }));
    in.Reset();
    char byte;
    return ExecRun{status, read(out.get(), &byte, 1) == 1};
}

// Exit status 0 or an errno, of a call that the LSM canary refuses.
int TryOpen() {
    int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? 0 : errno;
}

// A connect that sends nothing: UDP, own loopback. ENETUNREACH, where loopback is down, comes
// after the program was asked, so it is as good as success.
int TryConnect() {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(9);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int result = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    return result == 0 || errno == ENETUNREACH ? 0 : errno;
}

// How long the two tasks of HoldAndWake meet, and how often one wakes up. A thousand wake-ups, of which one
// that finds the program at work suffices.
constexpr uint64_t kMeetNs = 50'000'000;
constexpr long kNapNs = 50'000;

int HoldAndWake() {
    unsigned cpu = 0;
    if (syscall(SYS_getcpu, &cpu, nullptr, nullptr) != 0) return errno;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (cpu >= CPU_SETSIZE || sched_setaffinity(0, sizeof(one), &one) != 0) return errno;
    const uint64_t end = BootNow() + kMeetNs;
    const pid_t sleeper = fork();
    if (sleeper < 0) return errno;
    if (sleeper == 0) {
        // At once where it may; a kernel that preempts lazily would let the other finish its turn.
        const sched_param first{.sched_priority = 1};
        (void)sched_setscheduler(0, SCHED_FIFO, &first);
        const timespec nap{.tv_sec = 0, .tv_nsec = kNapNs};
        while (BootNow() < end) nanosleep(&nap, nullptr);
        _exit(0);
    }
    while (BootNow() < end) (void)getppid();
    int status = 0;
    return waitpid(sleeper, &status, 0) == sleeper && status == 0 ? 0 : ECHILD;
}

class Canaries {
  public:
    Canaries(const ThrowAwayCgroup& cgroup, const ProbeReport& report, std::vector<Made>& made)
        : cgroup_(cgroup), made_(made), report_(report) {}

    Status Load() {
        skeleton_.reset(canary__open());
        if (!skeleton_) return ErrnoStatus(errno, "open the canary object");
        auto& programs = skeleton_->progs;
        bpf_program__set_autoload(programs.skc_lsm, report_.has(Feature::PROG_LSM));
        bpf_program__set_autoload(programs.skc_exec, report_.has(Feature::PROG_TP_BTF) &&
                                                         report_.has(Feature::HELPER_SEND_SIGNAL));
        bpf_program__set_autoload(programs.skc_hold, report_.has(Feature::PROG_TP_BTF));
        bpf_program__set_autoload(programs.skc_connect, report_.has(Feature::PROG_SOCK_ADDR));
        SK_RETURN_IF_ERROR(NegErrnoStatus(canary__load(skeleton_.get()), "load the canary object"));
        NoteObject(skeleton_->obj, made_);
        SK_ASSIGN_OR_RETURN(uint64_t id, cgroup_.Id());
        skc_control control{};
        control.cgroup_id = id;
        return Write(control);
    }

    Status Lsm() {
        SK_RETURN_IF_ERROR(Loaded(skeleton_->progs.skc_lsm, Feature::PROG_LSM));
        SK_RETURN_IF_ERROR(Expect(TryOpen, 0, "without a program the call failed"));
        SK_ASSIGN_OR_RETURN(Link link, Attach(bpf_program__attach(skeleton_->progs.skc_lsm)));
        Status denied = Expect(TryOpen, EPERM, "");
        if (denied.ok()) return denied;
        SK_ASSIGN_OR_RETURN(skc_control control, Read());
        if (control.lsm_hits != 0) return absl::InternalError("it ran, and its refusal was not obeyed");
        return absl::FailedPreconditionError(
            absl::StrCat("attached without error and never called: bpf is not active (lsm=",
                         absl::StrJoin(report_.lsms, ","), ")"));
    }

    Status Exec() {
        SK_RETURN_IF_ERROR(Loaded(skeleton_->progs.skc_exec, Feature::PROG_TP_BTF));
        SK_ASSIGN_OR_RETURN(Fd program, CanaryProgram());
        SK_ASSIGN_OR_RETURN(ExecRun control, RunExec(cgroup_, program));
        if (!WIFEXITED(control.status) || WEXITSTATUS(control.status) != kRan || !control.wrote) {
            return absl::FailedPreconditionError("the canary program cannot run here (memfd exec)");
        }
        SK_ASSIGN_OR_RETURN(Link link, Attach(bpf_program__attach(skeleton_->progs.skc_exec)));
        SK_ASSIGN_OR_RETURN(ExecRun run, RunExec(cgroup_, program));
        if (run.wrote) return absl::InternalError("the program ran before the signal took it");
        if (!WIFSIGNALED(run.status) || WTERMSIG(run.status) != SIGKILL) {
            return absl::InternalError("the program was not killed");
        }
        return absl::OkStatus();
    }

    Status Connect() {
        SK_RETURN_IF_ERROR(Loaded(skeleton_->progs.skc_connect, Feature::PROG_SOCK_ADDR));
        SK_RETURN_IF_ERROR(Expect(TryConnect, 0, "without a program the call failed"));
        SK_ASSIGN_OR_RETURN(Link link, Attach(bpf_program__attach_cgroup(
                                           skeleton_->progs.skc_connect, cgroup_.dir().get())));
        return Expect(TryConnect, EPERM, "attached, and the connect was not refused");
    }

    // Two tasks on one CPU: one that is in the program nearly always, and one that wakes up there.
    Status Whole() {
        SK_RETURN_IF_ERROR(Loaded(skeleton_->progs.skc_hold, Feature::PROG_TP_BTF));
        SK_ASSIGN_OR_RETURN(Link link, Attach(bpf_program__attach(skeleton_->progs.skc_hold)));
        SK_ASSIGN_OR_RETURN(int status, cgroup_.Run(HoldAndWake));
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return absl::InternalError("the two tasks did not run");
        SK_ASSIGN_OR_RETURN(skc_control control, Read());
        if (control.hold_hits == 0) return absl::InternalError("attached, and never called");
        bpf_prog_info info{};
        uint32_t size = sizeof(info);
        SK_RETURN_IF_ERROR(NegErrnoStatus(
            bpf_obj_get_info_by_fd(bpf_program__fd(skeleton_->progs.skc_hold), &info, &size), "ask about a program"));
        if (info.recursion_misses == 0) return absl::OkStatus();
        return absl::FailedPreconditionError(
            absl::StrCat("preempted in the middle, ", info.recursion_misses, " runs of others left out"));
    }

  private:
    Status Loaded(const bpf_program* program, Feature by) const {
        if (bpf_program__fd(program) >= 0) return absl::OkStatus();
        return absl::FailedPreconditionError(
            absl::StrCat("not tried: ", InfoOf(by).name, ": ", report_.at(by).reason));
    }

    StatusOr<Link> Attach(bpf_link* link) {
        if (link == nullptr) return ErrnoStatus(errno, "attach");
        NoteLink(link, made_);
        return Link(link);
    }

    Status Expect(int (*call)(), int expected, absl::string_view otherwise) const {
        SK_ASSIGN_OR_RETURN(int status, cgroup_.Run(call));
        if (WIFEXITED(status) && WEXITSTATUS(status) == expected) return absl::OkStatus();
        if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
            return ErrnoStatus(WEXITSTATUS(status), otherwise);
        }
        return absl::InternalError(otherwise);
    }

    Status Write(const skc_control& control) const {
        uint32_t zero = 0;
        return NegErrnoStatus(bpf_map__update_elem(skeleton_->maps.skc_control, &zero, sizeof(zero),
                                                   &control, sizeof(control), BPF_ANY),
                              "aim the canary programs");
    }

    StatusOr<skc_control> Read() const {
        uint32_t zero = 0;
        skc_control control{};
        SK_RETURN_IF_ERROR(NegErrnoStatus(
            bpf_map__lookup_elem(skeleton_->maps.skc_control, &zero, sizeof(zero), &control,
                                 sizeof(control), 0),
            "read the canary counters"));
        return control;
    }

    const ThrowAwayCgroup& cgroup_;
    std::vector<Made>& made_;
    const ProbeReport& report_;
    Skeleton skeleton_;
};

}  // namespace

Status FillCanaries(const ThrowAwayCgroup& cgroup, ProbeReport& report) {
    std::vector<Made> made;
    {
        Canaries canaries(cgroup, report, made);
        Status loaded = canaries.Load();
        Set(report, Feature::CANARY_LSM, loaded.ok() ? canaries.Lsm() : loaded);
        Set(report, Feature::CANARY_EXEC, loaded.ok() ? canaries.Exec() : loaded);
        Set(report, Feature::CANARY_CONNECT, loaded.ok() ? canaries.Connect() : loaded);
        Set(report, Feature::CANARY_WHOLE, loaded.ok() ? canaries.Whole() : loaded);
    }
    return WaitUntilGone(made);
}

}  // namespace stockade::kernel::probe
