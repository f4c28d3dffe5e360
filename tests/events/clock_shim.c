// The wall clock of a process under LD_PRELOAD, moved by what stands in the file that STOCKADE_CLOCK_FILE names: as after a
// clock_settime(2), which moves CLOCK_REALTIME and no other clock, but of one process instead of the whole machine.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t* seconds;

__attribute__((constructor)) static void map_file(void) {
    const char* path = getenv("STOCKADE_CLOCK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void* at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) abort();  // a test whose clock does not move would show nothing
    seconds = at;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
    int rc = (int)syscall(SYS_clock_gettime, clock, now);
    if (rc == 0 && clock == CLOCK_REALTIME && seconds) now->tv_sec += *seconds;
    return rc;
}
