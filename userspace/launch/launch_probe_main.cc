// What the tests run inside a sandbox: one word asks for one attempt, the answer is a line
// "NAME RESULT" on standard output, where RESULT is "ok" or the name of the errno.
//     launch_probe open /etc/shadow socket 17 3 0 sleep
// Static, so that it needs nothing of the root it is put into.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

void Say(const char* name, long rc) { printf("%s %s\n", name, rc >= 0 ? "ok" : strerrorname_np(errno)); }

void Number() {
    timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    printf("%lld\n", now.tv_sec * 1000000000ll + now.tv_nsec);
}

void Descriptors() {
    printf("fds");
    for (int fd = 0; fd < 4096; ++fd) {
        if (fcntl(fd, F_GETFD) >= 0) printf(" %d", fd);
    }
    printf("\n");
}

void Status() {
    FILE* file = fopen("/proc/self/status", "r");
    char line[512];
    while (file != nullptr && fgets(line, sizeof(line), file) != nullptr) {
        for (const char* key : {"Cap", "NoNewPrivs", "Seccomp:", "Uid", "Gid", "Groups"}) {
            if (strncmp(line, key, strlen(key)) == 0) printf("%s", line);
        }
    }
    if (file != nullptr) fclose(file);
}

// What would put off the end of the sandbox, which its init is there for.
void Init() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    const sched_param idle{};
    const rlimit none{};
    Say("sched_setaffinity", sched_setaffinity(1, sizeof(one), &one));
    Say("sched_setscheduler", sched_setscheduler(1, SCHED_IDLE, &idle));
    Say("setpriority", setpriority(PRIO_PROCESS, 1, 19));
    Say("prlimit", prlimit(1, RLIMIT_CPU, &none, nullptr));
    Say("kill", kill(1, SIGSTOP));
}

void List(const char* path) {
    DIR* dir = opendir(path);
    printf("ls %s:", path);
    if (dir == nullptr) printf(" %s", strerrorname_np(errno));
    while (dirent* entry = dir == nullptr ? nullptr : readdir(dir)) {
        if (entry->d_name[0] != '.') printf(" %s", entry->d_name);
    }
    printf("\n");
    if (dir != nullptr) closedir(dir);
}

// A value refused in the low half must stay refused with bits in the half that the kernel ignores.
constexpr unsigned long kUpper = 1ul << 32;

void Escapes() {
    char page[512] = {};  // io_uring_setup, where it is granted, writes 120 bytes
    Say("unshare_user", syscall(SYS_unshare, CLONE_NEWUSER));
    Say("unshare_mount", syscall(SYS_unshare, CLONE_NEWNS));
    Say("unshare_smuggled", syscall(SYS_unshare, CLONE_NEWUSER | kUpper));
    Say("unshare_files", syscall(SYS_unshare, CLONE_FILES));
    Say("clone_user", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
    Say("clone3", syscall(435, page, sizeof(page)));
    Say("setns", syscall(SYS_setns, 0, 0));
    Say("mount", syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, 0));
    Say("umount", syscall(SYS_umount2, "/tmp", 0));
    Say("open_tree", syscall(428, AT_FDCWD, "/", 1));
    Say("fsopen", syscall(430, "tmpfs", 0));
    Say("mount_setattr", syscall(442, AT_FDCWD, "/", 0, page, 32));
    Say("pivot_root", syscall(SYS_pivot_root, ".", "."));
    Say("chroot", syscall(SYS_chroot, "/"));
    Say("ptrace", syscall(SYS_ptrace, 0, 0, 0, 0));
    Say("process_vm_readv", syscall(SYS_process_vm_readv, 1, 0, 0, 0, 0, 0));
    Say("pidfd_getfd", syscall(438, 0, 0, 0));
    Say("bpf", syscall(SYS_bpf, 0, page, sizeof(page)));
    Say("perf_event_open", syscall(SYS_perf_event_open, page, 0, -1, -1, 0));
    Say("io_uring_setup", syscall(425, 1, page));
    Say("keyctl", syscall(SYS_keyctl, 0, -3, 0));
    Say("add_key", syscall(SYS_add_key, "user", "x", "y", 1, -3));
    Say("init_module", syscall(SYS_init_module, page, 1, ""));
    Say("kexec_load", syscall(SYS_kexec_load, 0, 0, 0, 0));
    Say("userfaultfd", syscall(SYS_userfaultfd, 1));
    Say("open_by_handle_at", syscall(SYS_open_by_handle_at, 0, page, 0));
    Say("ioctl_tiocsti", ioctl(0, TIOCSTI, "x"));
    Say("ioctl_tiocsti_smuggled", syscall(SYS_ioctl, 0, TIOCSTI | kUpper, "x"));
    Say("ioctl_tioclinux", ioctl(0, 0x541c, page));
    Say("setuid_0", syscall(SYS_setuid, 0));
    Say("reboot", syscall(SYS_reboot, 0, 0, 0, 0));
    Say("unknown_call", syscall(999));
}

// Every way to a file with set-id bits that needs no capability.
void SetIds(const std::string& dir) {
    const std::string plain = dir + "/plain";
    auto at = [&](const char* name) { return dir + "/" + name; };
    int fd = open(plain.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    Say("plain", fd);
    Say("chmod", syscall(SYS_fchmodat, AT_FDCWD, plain.c_str(), 04755));
    Say("chmod_upper", syscall(SYS_fchmodat, AT_FDCWD, plain.c_str(), 02755 | kUpper));
    Say("fchmod", syscall(SYS_fchmod, fd, 06755));
    Say("fchmodat2", syscall(452, AT_FDCWD, plain.c_str(), 04755, 0));
#if defined(__x86_64__)
    Say("old_chmod", syscall(SYS_chmod, plain.c_str(), 04755));
    Say("old_open", syscall(SYS_open, at("open").c_str(), O_WRONLY | O_CREAT, 04755));
    Say("old_creat", syscall(SYS_creat, at("creat").c_str(), 04755));
    Say("old_mknod", syscall(SYS_mknod, at("mknod").c_str(), S_IFREG | 04755, 0));
#endif
    Say("openat", syscall(SYS_openat, AT_FDCWD, at("openat").c_str(), O_WRONLY | O_CREAT, 04755));
    Say("tmpfile", syscall(SYS_openat, AT_FDCWD, dir.c_str(), O_WRONLY | O_TMPFILE, 04755));
    Say("mknodat", syscall(SYS_mknodat, AT_FDCWD, at("mknodat").c_str(), S_IFREG | 02755, 0));
    unsigned long how[3] = {O_WRONLY | O_CREAT, 04755, 0};
    Say("openat2", syscall(437, AT_FDCWD, at("openat2").c_str(), how, sizeof(how)));
    // A mode that does not count is no reason to refuse.
    Say("read", syscall(SYS_openat, AT_FDCWD, plain.c_str(), O_RDONLY, 04755));
    Say("group_write", chmod(plain.c_str(), 0775));
}

void Core() {
    rlimit limit{0, 0};
    Say("set_core", setrlimit(RLIMIT_CORE, &limit));
    Say("get_core", getrlimit(RLIMIT_CORE, &limit));
    printf("core %lu %lu\n", limit.rlim_cur, limit.rlim_max);
}

void Socket(char** arg) {
    std::string name = std::string("socket_") + arg[0] + "_" + arg[1] + "_" + arg[2];
    unsigned long family = strtoul(arg[0], nullptr, 0);
    long fd = syscall(SYS_socket, family, atol(arg[1]), atol(arg[2]));
    Say(name.c_str(), fd);
    if (fd >= 0) close(static_cast<int>(fd));
}

void Connect(char** arg) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(atoi(arg[1])));
    to.sin_addr.s_addr = inet_addr(arg[0]);
    int rc = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to));
    if (rc != 0 && errno == EINPROGRESS) {
        pollfd p{fd, POLLOUT, 0};
        socklen_t size = sizeof(errno);
        int error = ETIMEDOUT;
        if (poll(&p, 1, 1500) == 1) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
        errno = error;
        rc = error == 0 ? 0 : -1;
    }
    Say("connect", rc);
    char text[64];
    pollfd p{fd, POLLIN, 0};
    ssize_t n = rc == 0 && poll(&p, 1, 3000) == 1 ? read(fd, text, sizeof(text)) : 0;
    if (n > 0) printf("said %.*s\n", static_cast<int>(n), text);
    close(fd);
}

void Abstract(const char* name) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    strncpy(to.sun_path + 1, name, sizeof(to.sun_path) - 2);
    Say("abstract", connect(fd, reinterpret_cast<sockaddr*>(&to),
                            static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + strlen(name))));
    close(fd);
}

void WriteFile(const char* path) {
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    Say("write", fd < 0 ? -1 : write(fd, "data", 4));
    if (fd >= 0) close(fd);
}

void Fill(const char* path) {
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    static char block[1 << 20];
    long long total = 0;
    ssize_t n;
    while ((n = write(fd, block, sizeof(block))) > 0) total += n;
    printf("fill %s %lld\n", strerrorname_np(errno), total);
}

// Children that ignore what can be ignored, in sessions of their own.
void Brood(int count) {
    for (int i = 0; i < count; ++i) {
        if (fork() == 0) {
            setsid();
            for (int signo = 1; signo < 64; ++signo) signal(signo, SIG_IGN);
            for (;;) pause();
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        char** arg = argv + i + 1;
        const int left = argc - i - 1;
        if (word == "now") Number();
        if (word == "fds") Descriptors();
        if (word == "status") Status();
        if (word == "escapes") Escapes();
        if (word == "init") Init();
        if (word == "core") Core();
        if (word == "getpid") printf("pid %d\n", getpid());
        if (word == "tty") printf("tty %s\n", isatty(0) ? ttyname(0) : "none");
        if (word == "size") {
            winsize size{};
            ioctl(0, TIOCGWINSZ, &size);
            printf("size %d %d\n", size.ws_row, size.ws_col);
        }
        if (word == "devtty") Say("devtty", open("/dev/tty", O_RDWR));
        if (word == "pause")
            for (;;) pause();
        if (word == "spin")
            for (;;) {
            }
        if (word == "abort") abort();
        if (left >= 1 && word == "exit") return atoi(arg[0]);
        if (left >= 1 && word == "die") raise(atoi(arg[0]));
        if (left >= 1 && word == "open") Say("open", open(arg[0], O_RDONLY | O_CLOEXEC));
        if (left >= 1 && word == "lease") {
            int fd = open(arg[0], O_RDONLY | O_CLOEXEC);
            Say("lease", fcntl(fd, F_SETLEASE, F_RDLCK));
        }
        if (left >= 1 && word == "ls") List(arg[0]);
        if (left >= 1 && word == "setids") SetIds(arg[0]);
        if (left >= 1 && word == "write") WriteFile(arg[0]);
        if (left >= 1 && word == "fill") Fill(arg[0]);
        if (left >= 1 && word == "kill") Say("kill", kill(atoi(arg[0]), SIGKILL));
        if (left >= 1 && word == "abstract") Abstract(arg[0]);
        if (left >= 1 && word == "brood") Brood(atoi(arg[0]));
        if (left >= 1 && word == "exec") {
            execl(arg[0], arg[0], "exit", "0", nullptr);
            Say("exec", -1);
        }
        if (left >= 2 && word == "connect") Connect(arg);
        if (left >= 2 && word == "symlink") Say("symlink", symlink(arg[0], arg[1]));
        if (left >= 2 && word == "link") Say("link", link(arg[0], arg[1]));
        if (left >= 2 && word == "rename") Say("rename", rename(arg[0], arg[1]));
        if (left >= 1 && word == "mkfifo") Say("mkfifo", mkfifo(arg[0], 0666));
        if (left >= 1 && word == "mkdir") Say("mkdir", mkdir(arg[0], 0755));
        if (left >= 2 && word == "truncate") {
            int fd = open(arg[0], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
            Say("truncate", ftruncate(fd, atoll(arg[1])));
        }
        if (left >= 3 && word == "socket") Socket(arg);
    }
    return 0;
}
