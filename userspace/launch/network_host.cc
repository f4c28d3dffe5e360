#include "userspace/launch/network_host.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"

namespace stockade::launch {
namespace {

constexpr const char* kGuardTable = "stockade_guard";
constexpr const char* kMarker = "/forwarding";  // holds the uplinks that we turned on
constexpr const char* kNftPaths[] = {"/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft"};

Status Sysctl(const std::string& path, absl::string_view value) {
    SK_ASSIGN_OR_RETURN(Fd file, Fd::Open(absl::StrCat("/proc/sys/net/", path), O_WRONLY));
    return Annotate(WriteAll(file.get(), value), path);
}

std::string ReadSysctl(const std::string& path) {
    auto text = ReadFile(absl::StrCat("/proc/sys/net/", path), 64);
    return text.ok() ? text->substr(0, text->find('\n')) : "";
}

// Interfaces of the default routes.
std::set<std::string> Uplinks() {
    std::set<std::string> uplinks;
    auto text = ReadFile("/proc/net/route", 4u << 20);
    if (!text.ok()) return uplinks;
    for (absl::string_view line : absl::StrSplit(*text, '\n')) {
        std::vector<absl::string_view> fields = absl::StrSplit(line, '\t');
        if (fields.size() > 7 && fields[1] == "00000000" && fields[7] == "00000000") {
            uplinks.insert(std::string(fields[0]));
        }
    }
    return uplinks;
}

StatusOr<Fd> GlobalLock(const std::string& dir) {
    SK_ASSIGN_OR_RETURN(Fd lock, Fd::Open(dir, O_RDONLY | O_DIRECTORY));
    if (flock(lock.get(), LOCK_EX) != 0) return ErrnoStatus(errno, "lock /run/stockade/net");
    return lock;
}

Status Guard(const std::set<std::string>& uplinks) {
    std::string names;
    for (const std::string& name : uplinks)
        absl::StrAppend(&names, names.empty() ? "" : ", ", "\"", name, "\"");
    return RunNft(absl::StrCat(
        "table inet ", kGuardTable, "\ndelete table inet ", kGuardTable, "\ntable inet ", kGuardTable,
        " {\n chain forward {\n  type filter hook forward priority -20; policy accept;\n"
        "  iifname { ",
        names, " } ct state new,invalid drop\n }\n}\n"));
}

}  // namespace

Status RunNft(const std::string& script) {
    const char* nft = nullptr;
    for (const char* path : kNftPaths) {
        if (nft == nullptr && access(path, X_OK) == 0) nft = path;
    }
    if (nft == nullptr) return absl::FailedPreconditionError("egress needs nft; install nftables");
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
    Fd in_read(in[0]), in_write(in[1]);
    if (pipe2(out, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
    Fd out_read(out[0]), out_write(out[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in_read.get(), 0);
    posix_spawn_file_actions_adddup2(&actions, out_write.get(), 1);
    posix_spawn_file_actions_adddup2(&actions, out_write.get(), 2);
    char* argv[] = {const_cast<char*>("nft"), const_cast<char*>("-f"), const_cast<char*>("-"), nullptr};
    char* envp[] = {nullptr};
    pid_t pid = -1;
    int rc = posix_spawn(&pid, nft, &actions, nullptr, argv, envp);
    posix_spawn_file_actions_destroy(&actions);
    in_read.Reset();
    out_write.Reset();
    if (rc != 0) return ErrnoStatus(rc, "start nft");
    // Our scripts are below the 64 KiB of a pipe, so this does not block on a stuck nft.
    Status written = WriteAll(in_write.get(), script);
    in_write.Reset();
    auto said = ReadAll(out_read.get(), 64u << 10);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    SK_RETURN_IF_ERROR(Annotate(written, "feed nft"));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("nft: ", said.ok() ? said->substr(0, said->find('\n')) : "failed"));
}

Status SetUpHostLink(const std::string& link) {
    // A kernel without IPv6 has no such file.
    (void)Sysctl(absl::StrCat("ipv6/conf/", link, "/disable_ipv6"), "1");
    SK_RETURN_IF_ERROR(Sysctl(absl::StrCat("ipv4/conf/", link, "/send_redirects"), "0"));
    SK_RETURN_IF_ERROR(Sysctl(absl::StrCat("ipv4/conf/", link, "/rp_filter"), "1"));
    return Sysctl(absl::StrCat("ipv4/conf/", link, "/forwarding"), "1");
}

std::vector<int> SlotFiles(const std::string& dir) {
    std::vector<int> numbers;
    DIR* listing = opendir(dir.c_str());
    if (listing == nullptr) return numbers;
    while (dirent* entry = readdir(listing)) {
        int number = -1;
        if (absl::SimpleAtoi(entry->d_name, &number) && number >= 0) numbers.push_back(number);
    }
    closedir(listing);
    return numbers;
}

Status StartForwarding(const std::string& dir, const std::string& link) {
    (void)link;  // its own setting is made with the link
    SK_ASSIGN_OR_RETURN(Fd lock, GlobalLock(dir));
    const std::string marker = dir + kMarker;
    std::set<std::string> ours;
    auto text = ReadFile(marker, 64u << 10);
    if (text.ok()) {
        for (absl::string_view name : absl::StrSplit(*text, '\n', absl::SkipEmpty()))
            ours.insert(std::string(name));
    }
    const size_t before = ours.size();
    for (const std::string& uplink : Uplinks()) {
        if (ReadSysctl(absl::StrCat("ipv4/conf/", uplink, "/forwarding")) == "0") ours.insert(uplink);
    }
    if (ours.size() == before) return absl::OkStatus();
    SK_RETURN_IF_ERROR(Guard(ours));
    SK_ASSIGN_OR_RETURN(Fd file, Fd::Open(marker, O_WRONLY | O_CREAT | O_TRUNC, 0600));
    for (const std::string& uplink : ours) {
        SK_RETURN_IF_ERROR(WriteAll(file.get(), uplink + "\n"));
        SK_RETURN_IF_ERROR(Sysctl(absl::StrCat("ipv4/conf/", uplink, "/forwarding"), "1"));
    }
    return absl::OkStatus();
}

Status StopForwarding(const std::string& dir, int leaving) {
    SK_ASSIGN_OR_RETURN(Fd lock, GlobalLock(dir));
    for (int number : SlotFiles(dir)) {
        if (number != leaving) return absl::OkStatus();
    }
    const std::string marker = dir + kMarker;
    auto text = ReadFile(marker, 64u << 10);
    if (!text.ok()) return absl::OkStatus();
    for (absl::string_view name : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
        // An uplink that has left the host has nothing to turn off.
        (void)Sysctl(absl::StrCat("ipv4/conf/", name, "/forwarding"), "0");
    }
    SK_RETURN_IF_ERROR(
        RunNft(absl::StrCat("table inet ", kGuardTable, "\ndelete table inet ", kGuardTable, "\n")));
    if (unlink(marker.c_str()) != 0) return ErrnoStatus(errno, "remove the forwarding marker");
    return absl::OkStatus();
}

}  // namespace stockade::launch
