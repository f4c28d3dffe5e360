#include "userspace/model/operation.h"

#include <fcntl.h>

#include "absl/strings/match.h"
#include "bpf/wire/escape.h"
#include "bpf/wire/file.h"
#include "bpf/wire/net.h"
#include "userspace/model/coverage.h"
#include "userspace/model/names.h"

namespace stockade::model {
namespace {

Operation OfExec(const v1::Event& event) {
    const v1::Exec& exec = event.exec();
    if (exec.role() == "interpreter") return Operation::EXEC_INTERPRETER;
    if (exec.role() == "mapped") return Operation::EXEC_MMAP;
    if (event.code() == "exec.no_path") return Operation::EXEC_MEMFD;
    return exec.path_detail().deleted() ? Operation::EXEC_DELETED : Operation::EXEC_PROGRAM;
}

Operation OfFile(const v1::Event& event) {
    if (event.code() == "files.rename_deny_below") return Operation::RENAME_OVER_DENY;
    const uint32_t flags = event.file().open_flags();
    switch (NumberOf(FileOps(), event.file().op())) {
        case SK_FILE_OPEN_WRITE:
            if ((flags & O_TMPFILE) == O_TMPFILE) return Operation::OPEN_TMPFILE;
            return flags & O_TRUNC ? Operation::OPEN_TRUNCATE : Operation::OPEN_WRITE;
        case SK_FILE_CREATE: return Operation::OPEN_CREATE;
        case SK_FILE_TRUNCATE: return Operation::TRUNCATE;
        case SK_FILE_UNLINK: return Operation::UNLINK;
        case SK_FILE_RENAME: return Operation::RENAME;
        case SK_FILE_LINK: return Operation::LINK;
        case SK_FILE_SYMLINK: return Operation::SYMLINK;
        case SK_FILE_MKNOD: return Operation::MKNOD;
        case SK_FILE_MKDIR: return Operation::MKDIR;
        case SK_FILE_RMDIR: return Operation::RMDIR;
        case SK_FILE_CHMOD: return Operation::CHMOD;
        case SK_FILE_CHOWN: return Operation::CHOWN;
        case SK_FILE_SETXATTR: return Operation::SETXATTR;
        case SK_FILE_UTIMES: return Operation::UTIMES;
        case SK_FILE_HANDLE: return Operation::OPEN_BY_HANDLE;
        case SK_FILE_READDIR: return Operation::OPEN_DIRECTORY;
        default: return Operation::OPEN_READ;
    }
}

Operation OfConnect(const v1::Net& net) {
    if (net.family() == "unix") {
        return net.unix_abstract() ? Operation::UNIX_ABSTRACT : Operation::UNIX_PATH;
    }
    if (net.mapped()) return Operation::CONNECT_MAPPED;
    if (net.protocol() == "mptcp") return Operation::CONNECT_MPTCP;
    if (net.type() == "dgram") return Operation::CONNECT_UDP;
    return net.family() == "inet6" ? Operation::CONNECT_TCP6 : Operation::CONNECT_TCP4;
}

Operation OfNet(const v1::Net& net) {
    switch (NumberOf(NetOps(), net.op())) {
        case SK_NET_SEND:
            if (net.family() == "unix") return Operation::UNIX_DATAGRAM;
            return net.mapped() ? Operation::SEND_MAPPED : Operation::SEND_UDP;
        case SK_NET_BIND: return Operation::BIND;
        case SK_NET_LISTEN: return Operation::LISTEN;
        case SK_NET_SOCKET:
            if (net.family() == "packet") return Operation::SOCKET_PACKET;
            return absl::StartsWith(net.family(), "inet") ? Operation::SOCKET_INET
                                                          : Operation::SOCKET_OTHER;
        case SK_NET_RECEIVE: return Operation::SOCKET_RECEIVED;
        case SK_NET_PACKET: return Operation::PACKET_UNANNOUNCED;
        default: return OfConnect(net);
    }
}

absl::string_view OfEscape(const v1::Escape& escape) {
    switch (NumberOf(EscapeOps(), escape.op())) {
        // Those whose word in events and id in the table differ.
        case SK_ESCAPE_UNSHARE_USER: return InfoOf(Operation::UNSHARE_USER).id;
        case SK_ESCAPE_UNSHARE_MOUNT: return InfoOf(Operation::UNSHARE_MOUNT).id;
        case SK_ESCAPE_PERF_EVENT: return InfoOf(Operation::PERF_EVENT).id;
        case SK_ESCAPE_PROC_MEM: return InfoOf(Operation::PROC_MEM).id;
        case SK_ESCAPE_CGROUP: return InfoOf(Operation::CGROUP_PROCS).id;
        // CAP_SYS_ADMIN: refused for what has no hook of its own, which is setns first of all.
        case SK_ESCAPE_CAPABILITY: return InfoOf(Operation::SETNS).id;
        case SK_ESCAPE_LEFT_CGROUP: return InfoOf(Operation::MOVED_OUT).id;
        default: break;
    }
    const auto operation = FindOperation(escape.op());
    return operation ? InfoOf(*operation).id : absl::string_view();
}

}  // namespace

absl::string_view OperationOf(const v1::Event& event) {
    switch (event.payload_case()) {
        case v1::Event::kExec: return InfoOf(OfExec(event)).id;
        case v1::Event::kFile: return InfoOf(OfFile(event)).id;
        case v1::Event::kNet: return InfoOf(OfNet(event.net())).id;
        case v1::Event::kEscape: return OfEscape(event.escape());
        default: return {};
    }
}

}  // namespace stockade::model
