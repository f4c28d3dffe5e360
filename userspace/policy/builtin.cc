#include "userspace/policy/builtin.h"

#include <cstdlib>

#include "userspace/policy/parse.h"

namespace stockade::policy {
namespace {

// The kernel sees /proc/self as /proc/PID. A launched sandbox has a pid namespace and a /proc of
// its own, so the star stands for its own processes; memory and environment are left out, for
// they would show one tool's secrets to another.
constexpr char kText[] = R"(apiVersion: stockade.dev/v1
kind: SandboxPolicy
metadata: {name: base}
spec:
  extends: []
  exec:
    libraries: [/lib/**, /lib64/**, /lib32/**, /usr/lib/**, /usr/lib64/**, /usr/lib32/**]
  files:
    read:
      # the loader and its libraries
      - /lib/**
      - /lib64/**
      - /lib32/**
      - /usr/lib/**
      - /usr/lib64/**
      - /usr/lib32/**
      - /etc/ld.so.cache
      - /etc/ld.so.preload
      - /etc/ld.so.conf
      - /etc/ld.so.conf.d/**
      # libc: users, names of hosts and services
      - /etc/nsswitch.conf
      - /etc/passwd
      - /etc/group
      - /etc/host.conf
      - /etc/hosts
      - /etc/resolv.conf
      - /etc/gai.conf
      - /etc/services
      - /etc/protocols
      # locale and terminals
      - /etc/locale.alias
      - /etc/locale.conf
      - /etc/default/locale
      - /usr/share/locale/**
      - /usr/share/i18n/**
      - /usr/share/terminfo/**
      - /etc/terminfo/**
      # time zones
      - /etc/localtime
      - /etc/timezone
      - /usr/share/zoneinfo/**
      # random numbers
      - /dev/random
      - /dev/urandom
      # the names in the root directory and in /dev
      - /
      - /dev
      # what the machine looks like, as allocators and run times ask at start
      - /proc
      - /proc/cpuinfo
      - /proc/meminfo
      - /proc/stat
      - /proc/uptime
      - /proc/loadavg
      - /proc/version
      - /proc/filesystems
      - /proc/sys/kernel/**
      - /proc/sys/vm/**
      - /proc/sys/fs/**
      - /sys/devices/system/cpu/**
      - /sys/kernel/mm/transparent_hugepage/**
      - /sys/fs/cgroup/**
      # the sandbox's own processes
      - /proc/*
      - /proc/*/attr/current
      - /proc/*/auxv
      - /proc/*/cgroup
      - /proc/*/cmdline
      - /proc/*/comm
      - /proc/*/fd
      - /proc/*/fdinfo/**
      - /proc/*/io
      - /proc/*/limits
      - /proc/*/loginuid
      - /proc/*/maps
      - /proc/*/mountinfo
      - /proc/*/mounts
      - /proc/*/net/**
      - /proc/*/oom_score
      - /proc/*/schedstat
      - /proc/*/sessionid
      - /proc/*/smaps
      - /proc/*/smaps_rollup
      - /proc/*/stat
      - /proc/*/statm
      - /proc/*/status
      - /proc/*/task
      - /proc/*/task/*
      - /proc/*/task/*/comm
      - /proc/*/task/*/maps
      - /proc/*/task/*/stat
      - /proc/*/task/*/status
    write:
      - /dev/null
      - /dev/zero
      - /dev/full
      - /dev/tty
      - /dev/ptmx
      - /dev/pts/*
      - /proc/*/comm
      - /proc/*/task/*/comm
      - /proc/*/oom_score_adj
---
# No program starts, no file opens, nothing leaves.
apiVersion: stockade.dev/v1
kind: SandboxPolicy
metadata: {name: deny-all}
spec:
  extends: []
  exec: {allow: []}
  files: {read: []}
  network: {allow: []}
---
# Everything inside the sandbox, nothing out of it: for `stockade run` without a policy.
apiVersion: stockade.dev/v1
kind: SandboxPolicy
metadata: {name: networkless}
spec:
  exec:
    allow: [/**]
  files:
    read: [/**]
    write: [/out/**, /tmp/**, /dev/shm/**]
    deny: ["/proc/*/mem", "/proc/*/task/*/mem"]
  network:
    allow: []
)";

}  // namespace

const char* BuiltinText() { return kText; }

const std::vector<SandboxPolicy>& BuiltinPolicies() {
    static const std::vector<SandboxPolicy>* const policies = [] {
        ParseResult parsed = ParseFiles({{kBuiltinFile, kText}});
        if (HasErrors(parsed.diagnostics)) std::abort();  // our own text: a bug, and a test finds it
        for (SandboxPolicy& policy : parsed.policies) policy.builtin = policy.name == kBase;
        return new std::vector<SandboxPolicy>(std::move(parsed.policies));
    }();
    return *policies;
}

}  // namespace stockade::policy
