#include "userspace/cmd/verify_topics.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/client.h"

namespace stockade::cmd {
namespace {

// The name of a topic, or an event: no longer than a record of the spool is as JSON.
constexpr size_t kMaxLineBytes = 32 << 20;

struct Line {
    ~Line() { free(text); }
    char* text = nullptr;
    size_t room = 0;
};

Status EachLine(FILE* file, const std::function<Status(const std::string& line)>& fn) {
    Line line;
    for (ssize_t size; (size = getline(&line.text, &line.room, file)) > 0;) {
        if (static_cast<size_t>(size) > kMaxLineBytes)
            return absl::InvalidArgumentError(absl::StrCat("a line of more than ", kMaxLineBytes, " bytes"));
        if (line.text[size - 1] == '\n') --size;
        SK_RETURN_IF_ERROR(fn(std::string(line.text, static_cast<size_t>(size))));
    }
    return ferror(file) ? ErrnoStatus(errno, "read the topics") : absl::OkStatus();
}

}  // namespace

Status ReadTopicLines(const std::vector<std::string>& options, const std::function<Status(const std::string& line)>& line) {
    const std::string binary = AgentBinary();
    std::vector<const char*> argv = {binary.c_str(), "--print-topics"};
    for (const std::string& option : options) argv.push_back(option.c_str());
    argv.push_back(nullptr);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
    Fd read_end(ends[0]), write_end(ends[1]);
    const pid_t child = fork();
    if (child < 0) return ErrnoStatus(errno, "start stockaded");
    if (child == 0) {
        if (dup2(write_end.get(), STDOUT_FILENO) < 0) _exit(126);
        execvp(argv[0], const_cast<char* const*>(argv.data()));
        _exit(127);
    }
    write_end.Reset();
    Status status;
    if (FILE* file = fdopen(read_end.get(), "r")) {
        (void)read_end.Release();  // the stream's
        status = EachLine(file, line);
        (void)fclose(file);  // a reader that ends early ends the child by that
    } else {
        status = ErrnoStatus(errno, "read the topics");
    }
    int ended = 0;
    while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
    }
    SK_RETURN_IF_ERROR(status);
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return absl::OkStatus();
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 127)
        return absl::NotFoundError(absl::StrCat(binary, ", which reads the topics, cannot be run"));
    return absl::UnavailableError("the topics could not be read to their end");
}

}  // namespace stockade::cmd
