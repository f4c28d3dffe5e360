#include "userspace/base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
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

}  // namespace
}  // namespace stockade
