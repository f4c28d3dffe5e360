// A minimal /etc: who the sandbox is, how names are found, what the loader and TLS need.
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "userspace/launch/root.h"

namespace stockade::launch {

Status AddEtc(const NativeSpec& spec, const std::string& resolver, RootTree& tree) {
    const int root = tree.root.get();
    SK_RETURN_IF_ERROR(MakeDirs(root, "etc"));
    struct Row {
        const char* name;
        std::string text;
    };
    const Row rows[] = {
        {"etc/passwd", absl::StrCat("root:x:0:0:root:/:/usr/sbin/nologin\n",  //
                                    "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
                                    "sandbox:x:", spec.uid, ":", spec.gid, ":sandbox:/tmp:/bin/sh\n")},
        {"etc/group", absl::StrCat("root:x:0:\ntty:x:5:\nnogroup:x:65534:\nsandbox:x:", spec.gid, ":\n")},
        {"etc/hosts", "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n"},
        {"etc/hostname", "sandbox\n"},
        {"etc/nsswitch.conf",
         "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
         "networks: files\nprotocols: files\nservices: files\n"},
        {"etc/resolv.conf",
         resolver.empty() ? "# no network\n" : absl::StrCat("nameserver ", resolver, "\n")},
    };
    for (const Row& row : rows) SK_RETURN_IF_ERROR(WriteFileAt(root, row.name, row.text));
    // Of /etc/ssl the certificates only: beside them lie private keys.
    for (const char* path : {"etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d", "etc/ssl/certs",
                             "etc/ssl/openssl.cnf", "etc/alternatives", "etc/localtime"}) {
        SK_RETURN_IF_ERROR(AddHostBind(tree, absl::StrCat("/", path), path));
    }
    return absl::OkStatus();
}

}  // namespace stockade::launch
