// What sandboxes are measured with: a static program that does one thing.
//
//   bench_step now       the boot time of its first instruction, in decimal, to standard output
//   bench_step exit      nothing
//   bench_step kill N    starts N children that sleep, then executes what no policy of the bench allows
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

uint64_t BootNow() {
    timespec now{};
    (void)clock_gettime(CLOCK_BOOTTIME, &now);  // always there
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

int Kill(int sleepers) {
    for (int i = 0; i < sleepers; i++) {
        const pid_t pid = fork();
        if (pid < 0) return 3;
        if (pid == 0) {
            for (;;) pause();
        }
    }
    char program[] = "/usr/bin/true";
    char* argv[] = {program, nullptr};
    execv(program, argv);
    return 4;  // refused only, or not there: the sandbox was not condemned
}

}  // namespace

int main(int argc, char** argv) {
    const uint64_t now = BootNow();
    if (argc == 2 && std::strcmp(argv[1], "now") == 0) {
        char text[32];
        const int size = snprintf(text, sizeof(text), "%llu", static_cast<unsigned long long>(now));
        return write(1, text, static_cast<size_t>(size)) == size ? 0 : 2;
    }
    if (argc == 3 && std::strcmp(argv[1], "kill") == 0) return Kill(atoi(argv[2]));
    return argc == 2 && std::strcmp(argv[1], "exit") == 0 ? 0 : 2;
}
