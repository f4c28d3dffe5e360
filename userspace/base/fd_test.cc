#include "userspace/base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace stockade {
namespace {

TEST(WriteAll, WaitsForAReaderWhereTheDescriptorDoesNotBlock) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    Fd reader(ends[0]), writer(ends[1]);
    const std::string text(1 << 20, 'x');  // more than a pipe holds
    Status status;
    std::thread thread([&] {
        status = WriteAll(writer.get(), text);
        writer.Reset();
    });
    (void)fcntl(reader.get(), F_SETFL, 0);
    const StatusOr<std::string> read = ReadAll(reader.get(), 2 << 20);
    thread.join();
    EXPECT_TRUE(status.ok()) << status;
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, text);
}

TEST(FillStandardStreams, ClosedOnesBecomeNullAndOthersStay) {
    for (int closed = 0; closed < 8; ++closed) {
        const pid_t pid = fork();
        if (pid == 0) {
            int pipe_fds[2];
            if (pipe(pipe_fds) != 0) _exit(10);
            for (int fd = 0; fd < 3; ++fd) {
                if ((closed >> fd & 1) != 0)
                    (void)close(fd);
                else
                    (void)dup2(pipe_fds[0], fd);
            }
            if (!FillStandardStreams()) _exit(11);
            for (int fd = 0; fd < 3; ++fd) {
                struct stat info{};
                if (fstat(fd, &info) != 0) _exit(12);
                if (S_ISCHR(info.st_mode) != ((closed >> fd & 1) != 0)) _exit(13);
            }
            const int next = open("/dev/null", O_RDONLY);
            _exit(next > 2 ? 0 : 14);
        }
        int status = 0;
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        EXPECT_EQ(WEXITSTATUS(status), 0) << closed;
    }
}

}  // namespace
}  // namespace stockade
