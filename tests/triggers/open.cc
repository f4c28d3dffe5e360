// Ways to open.
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/triggers/trigger.h"
#include "tests/triggers/uring.h"

namespace stockade::triggers {
namespace {

int ReadOut(long fd) {
    if (fd < 0) return Refused();
    char bytes[64];
    ssize_t n = read(static_cast<int>(fd), bytes, sizeof(bytes));
    return n < 0 ? Refused() : Data(bytes, static_cast<size_t>(n));
}

int WriteOut(long fd) {
    if (fd < 0) return Refused();
    return Outcome(write(static_cast<int>(fd), "x", 1));
}

int OpenRead(Args args) { return ReadOut(syscall(SYS_openat, AT_FDCWD, args[0], O_RDONLY)); }
#ifdef SYS_open
int OpenOld(Args args) { return ReadOut(syscall(SYS_open, args[0], O_RDONLY)); }
int Creat(Args args) { return Outcome(syscall(SYS_creat, args[0], 0644)); }
#endif
int Openat2(Args args) {
    struct open_how how {};
    how.flags = O_RDONLY;
    return ReadOut(syscall(SYS_openat2, AT_FDCWD, args[0], &how, sizeof(how)));
}
int OpenWrite(Args args) { return WriteOut(open(args[0], O_WRONLY)); }
int OpenReadWrite(Args args) { return WriteOut(open(args[0], O_RDWR)); }
int OpenCreate(Args args) { return Outcome(open(args[0], O_WRONLY | O_CREAT | O_EXCL, 0644)); }
int OpenTruncate(Args args) { return Outcome(open(args[0], O_WRONLY | O_TRUNC)); }
int OpenReadTruncate(Args args) { return Outcome(open(args[0], O_RDONLY | O_TRUNC)); }
int OpenTmpfile(Args args) { return Outcome(open(args[0], O_RDWR | O_TMPFILE, 0600)); }
int OpenPathOnly(Args args) { return Outcome(open(args[0], O_PATH)); }

int OpenDirectory(Args args) {
    long fd = open(args[0], O_RDONLY | O_DIRECTORY);
    if (fd < 0) return Refused();
    char entries[1024];
    return Outcome(syscall(SYS_getdents64, fd, entries, sizeof(entries)));
}

// Through a pipe that the trigger made: what is reopened holds nothing new.
int ReopenPipe(Args) {
    int pipes[2];
    if (pipe(pipes) != 0 || dup2(pipes[0], 9) < 0) return Setup("pipe");
    return Outcome(open("/proc/self/fd/9", O_RDONLY | O_NONBLOCK));
}

// From the directory, so that nothing is opened before.
int OpenByHandle(Args args) {
    if (chdir(args[0]) != 0) return Setup("chdir");
    alignas(file_handle) char space[sizeof(file_handle) + MAX_HANDLE_SZ];
    auto* handle = reinterpret_cast<file_handle*>(space);
    handle->handle_bytes = MAX_HANDLE_SZ;
    int mount = 0;
    if (name_to_handle_at(AT_FDCWD, args[1], handle, &mount, 0) != 0) return Setup("name_to_handle_at");
    return ReadOut(open_by_handle_at(AT_FDCWD, handle, O_RDONLY));
}

volatile bool g_spin = true;
void* SpinOnPread(void*) {
    char bytes[64];
    while (g_spin) {
        ssize_t n = pread(9, bytes, sizeof(bytes), 0);
        if (n <= 0) continue;
        Data(bytes, static_cast<size_t>(n));
        g_spin = false;
    }
    return nullptr;
}

// The descriptor will be 9: all below are taken.
int FillDescriptors() {
    for (int fd = 3; fd < 9; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && dup2(1, fd) < 0) return -1;
    }
    return 0;
}

int OpenWhileThreadReads(Args args) {
    pthread_t thread;
    if (FillDescriptors() != 0 || pthread_create(&thread, nullptr, SpinOnPread, nullptr) != 0) return Setup("thread");
    if (open(args[0], O_RDONLY) < 0) {
        g_spin = false;
        return Refused();
    }
    Lived();
    pthread_join(thread, nullptr);
    return 0;
}

int ReadForEver(void*) {
    SpinOnPread(nullptr);
    // It has the descriptor and stays: only a kill gets rid of it. Each call is a chance for that.
    for (;;) sched_yield();
}

int EndAtOnce(void*) { _exit(0); }

// The same, but nearly all its calls are births of more sharers: none of them may make the table a new one.
int CloneForEver(void*) {
    static char stacks[16][4096];
    signal(SIGCHLD, SIG_IGN);  // nobody waits: most of the time is that before the birth
    for (unsigned i = 0; g_spin; i++) {
        if (i % 256 == 255) {
            char bytes[64];
            ssize_t n = pread(9, bytes, sizeof(bytes), 0);
            if (n <= 0) continue;
            Data(bytes, static_cast<size_t>(n));
            g_spin = false;
        } else {
            (void)clone(EndAtOnce, stacks[i % 16] + sizeof(stacks[0]), CLONE_FILES | CLONE_VM | SIGCHLD, nullptr);
        }
    }
    for (;;) sched_yield();
}

// The kernel zeroes them when that task dies: so another one learns of it without a call.
volatile int g_opener = 1, g_sharer = 1;
// A child with a copy of the table, made by the sharer; 0 = none.
volatile pid_t g_heir = 0;
volatile bool g_sharing = false;

int ForkWhenOpenerIsDead(void*) {
    static char stack[65536];
    while (g_opener != 0) {}
    (void)clone(ReadForEver, stack + sizeof(stack), CLONE_VM | CLONE_PARENT_SETTID | SIGCHLD, nullptr, const_cast<pid_t*>(&g_heir));
    for (;;) sched_yield();
}

int UnshareWhenOpenerIsDead(void*) {
    while (g_opener != 0) {}
    (void)unshare(CLONE_FILES);
    return ReadForEver(nullptr);
}

// A third one, without which the sharer would be alone with the table, and have nothing to unshare.
int ShareUntilSharerIsDead(void*) {
    g_sharing = true;
    while (g_sharer != 0) {}
    _exit(0);
}

int (*g_sharer_does)(void*) = nullptr;
int Share(void*) {
    g_sharing = true;
    return g_sharer_does(nullptr);
}

// Another process with the same descriptor table. It outlives the opener, unless it is killed as well.
int OpenWhileSharer(int (*does)(void*), Args args) {
    static char stack[65536];
    if (FillDescriptors() != 0) return Setup("descriptors");
    (void)syscall(SYS_set_tid_address, &g_opener);
    g_sharer_does = does;
    g_sharing = false;
    pid_t sharer = clone(Share, stack + sizeof(stack), CLONE_FILES | CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD, nullptr, nullptr,
                         nullptr, const_cast<int*>(&g_sharer));
    if (sharer < 0) return Setup("clone");
    while (!g_sharing) sched_yield();  // else it would be killed at its birth
    int fd = open(args[0], O_RDONLY);
    int refused = errno;
    if (fd >= 0) {
        Lived();
        g_opener = 0;
    }
    while (fd >= 0 && g_spin) sched_yield();
    if (g_heir > 0) kill(g_heir, SIGKILL);
    kill(sharer, SIGKILL);
    waitpid(sharer, nullptr, 0);
    errno = refused;
    return fd < 0 ? Refused() : 0;
}
int OpenWhileSharerReads(Args args) { return OpenWhileSharer(ReadForEver, args); }
int OpenWhileSharerClones(Args args) { return OpenWhileSharer(CloneForEver, args); }
int OpenThenSharerForks(Args args) { return OpenWhileSharer(ForkWhenOpenerIsDead, args); }
int OpenThenSharerUnshares(Args args) {
    static char stack[65536];
    if (clone(ShareUntilSharerIsDead, stack + sizeof(stack), CLONE_FILES | CLONE_VM | SIGCHLD, nullptr) < 0) return Setup("clone");
    while (!g_sharing) sched_yield();
    return OpenWhileSharer(UnshareWhenOpenerIsDead, args);
}

#if defined(__x86_64__)
void NoCompat(int) { _exit(2); }

// int 0x80 takes 32-bit addresses.
int OpenCompat(Args args) {
    char* low = static_cast<char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0));
    if (low == MAP_FAILED) return Setup("map");
    strncpy(low, args[0], 4095);
    signal(SIGSEGV, NoCompat);
    int result;
    asm volatile("int $0x80" : "=a"(result) : "a"(5), "b"(low), "c"(O_RDONLY), "d"(0) : "memory");
    if (result < 0) errno = -result;
    return ReadOut(result < 0 ? -1 : result);
}
#endif

int OpenUring(Args args) {
    Uring ring;
    if (!ring.Start(0)) return Setup("io_uring_setup");
    io_uring_sqe sqe{};
    sqe.opcode = IORING_OP_OPENAT;
    sqe.flags = Number(args[1]) ? IOSQE_ASYNC : 0;
    sqe.fd = AT_FDCWD;
    sqe.addr = reinterpret_cast<uint64_t>(args[0]);
    sqe.open_flags = O_RDONLY;
    int result = ring.Submit(sqe);
    if (result < 0) errno = -result;
    return ReadOut(result);
}

// DIR NAME COUNT FILE: down COUNT directories called NAME, then FILE.
int OpenDeep(Args args) {
    if (chdir(args[0]) != 0) return Setup("chdir");
    for (int i = 0; i < Number(args[2]); i++) {
        if (chdir(args[1]) != 0) return Setup("chdir");
    }
    char* file[] = {args[3]};
    return OpenRead(file);
}

int OpenUnfaulted(Args args) {
    int fd = open(args[0], O_RDONLY | O_CLOEXEC);
    void* page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    if (page == MAP_FAILED) return Setup("map");
    char* name[] = {static_cast<char*>(page)};
    return OpenRead(name);
}

int ChrootOpen(Args args) {
    if (chroot(args[0]) != 0) return Setup("chroot");
    return OpenRead(args.subspan(1));
}

// Opens again and again until standard input ends: A worked, E was refused with EPERM, O else.
int OpenLoop(Args args) {
    for (;;) {
        int fd = open(args[0], O_RDONLY);
        char letter = fd >= 0 ? 'A' : errno == EPERM ? 'E' : 'O';
        if (fd >= 0) close(fd);
        if (write(1, &letter, 1) != 1) return 1;
    }
}

const Trigger kTriggers[] = {
    {"open_read", 1, "FILE", OpenRead},
#ifdef SYS_open
    {"open_old", 1, "FILE", OpenOld},
    {"creat", 1, "FILE", Creat},
#endif
    {"openat2", 1, "FILE", Openat2},
    {"open_write", 1, "FILE", OpenWrite},
    {"open_read_write", 1, "FILE", OpenReadWrite},
    {"open_create", 1, "FILE", OpenCreate},
    {"open_truncate", 1, "FILE", OpenTruncate},
    {"open_read_truncate", 1, "FILE", OpenReadTruncate},
    {"open_tmpfile", 1, "DIR", OpenTmpfile},
    {"open_path_only", 1, "FILE", OpenPathOnly},
    {"open_directory", 1, "DIR", OpenDirectory},
    {"reopen_pipe", 0, "", ReopenPipe},
    {"open_by_handle", 2, "DIR NAME", OpenByHandle},
    {"open_thread_reads", 1, "FILE", OpenWhileThreadReads},
    {"open_shared_table", 1, "FILE", OpenWhileSharerReads},
    {"open_shared_table_births", 1, "FILE", OpenWhileSharerClones},
    {"open_shared_table_forks", 1, "FILE", OpenThenSharerForks},
    {"open_shared_table_unshares", 1, "FILE", OpenThenSharerUnshares},
#if defined(__x86_64__)
    {"open_compat", 1, "FILE", OpenCompat},
#endif
    {"open_io_uring", 2, "FILE ASYNC", OpenUring},
    {"open_deep", 4, "DIR NAME COUNT FILE", OpenDeep},
    {"open_unfaulted", 1, "FILE-WITH-NAME", OpenUnfaulted},
    {"chroot_open", 2, "ROOT FILE", ChrootOpen},
    {"open_loop", 1, "FILE", OpenLoop},
};

}  // namespace

std::span<const Trigger> OpenTriggers() { return kTriggers; }

}  // namespace stockade::triggers
