// A minimal /etc: who the sandbox is, how names are found, what the loader and TLS need.
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "userspace/launch/root.h"

namespace stockade::launch {

Status AddUser(const NativeSpec& spec, RootTree& tree) {
    const int root = tree.root.get();
    SK_RETURN_IF_ERROR(
        WriteFileAt(root, "etc/passwd",
                    absl::StrCat("root:x:0:0:root:/:/usr/sbin/nologin\n",
                                 "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n", "sandbox:x:", spec.uid,
                                 ":", spec.gid, ":sandbox:/tmp:/bin/sh\n")));
    return WriteFileAt(root, "etc/group",
                       absl::StrCat("root:x:0:\ntty:x:5:\nnogroup:x:65534:\nsandbox:x:", spec.gid, ":\n"));
}

Status AddEtc(const std::string& resolver, RootTree& tree) {
    const int root = tree.root.get();
    SK_RETURN_IF_ERROR(MakeDirs(root, "etc"));
    struct Row {
        const char* name;
        std::string text;
    };
    const Row rows[] = {
        {"etc/hosts", "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n"},
        {"etc/hostname", "sandbox\n"},
        {"etc/nsswitch.conf",
         "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
         "networks: files\nprotocols: files\nservices: files\n"},
        {"etc/resolv.conf",
         resolver.empty() ? "# no network\n" : absl::StrCat("nameserver ", resolver, "\n")},
    };
    for (const Row& row : rows) SK_RETURN_IF_ERROR(WriteFileAt(root, row.name, row.text));
    for (const char* path : kHostEtc) {
        SK_RETURN_IF_ERROR(AddHostBind(tree, absl::StrCat("/", path), path));
    }
    return absl::OkStatus();
}

}  // namespace stockade::launch
