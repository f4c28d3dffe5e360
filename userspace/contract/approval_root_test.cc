// An approver of another user, which only root can make.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "userspace/base/fd.h"
#include "userspace/contract/approval.h"
#include "userspace/contract/parse.h"
#include "userspace/contract/refusal.h"

namespace stockade::contract {
namespace {

using ::testing::HasSubstr;

int Listen(const std::string& path) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    const bool up = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 && listen(fd, 4) == 0;
    return up ? fd : -1;
}

// Who listens is what the kernel says, whatever the answer says of itself.
TEST(Approving, ASocketOfAnotherUserIsNobodysWord) {
    char name[] = "/tmp/stockade_approval_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    ASSERT_EQ(chmod(name, 0777), 0);
    const std::string path = std::string(name) + "/s";
    const auto contract = ParseOne("c", "apiVersion: stockade.dev/v1\nkind: ToolContract\nmetadata: {name: t}\nspec: {class: sandbox, policy: p, timeout: 1s, command: {allow: [/bin/true]}}\n");
    ASSERT_TRUE(contract.ok()) << contract.status();
    ApprovalRequest request;
    request.id = "call-1";
    request.contract = &*contract;
    request.call.argv = {"/bin/true"};
    const std::string answer = R"({"id":"call-1","digest":")" + DigestsOf(request.call).all + R"(","decision":"allow","by":"root"})";
    ASSERT_TRUE(ReadAnswer(answer, request).ok());
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        if (setresuid(4711, 4711, 4711) != 0) _exit(1);
        const Fd listener(Listen(path));
        if (write(ready[1], "x", 1) != 1) _exit(1);
        const Fd peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        (void)!write(peer.get(), answer.data(), answer.size());
        _exit(0);
    }
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    const auto approval = Ask(*ApprovalChannel::Parse("unix:" + path), request, 20'000'000'000);
    EXPECT_EQ(RefusalCode(approval.status()), "approval.failed");
    EXPECT_THAT(approval.status().message(), HasSubstr("served by uid 4711"));
    EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
    close(ready[0]);
    close(ready[1]);
    std::filesystem::remove_all(name);
}

}  // namespace
}  // namespace stockade::contract
