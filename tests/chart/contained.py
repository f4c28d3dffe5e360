#!/usr/bin/python3
"""Starts a program as a container runtime would: contained.py SPEC. SPEC is JSON: root, mounts, capabilities, arguments, and `join` for a
process that shares the mounts of another, as an exec probe does. Run under `unshare --mount`, so that nothing is left behind.
"""

import ctypes
import json
import os
import subprocess
import sys

PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 23, 24, 38
CLONE_NEWNS = 0x00020000
# linux/capability.h
CAPABILITIES = {'CHOWN': 0, 'DAC_OVERRIDE': 1, 'DAC_READ_SEARCH': 2, 'KILL': 5, 'NET_ADMIN': 12, 'SYS_PTRACE': 19, 'SETPCAP': 8, 'SYS_ADMIN': 21,
                'SYSLOG': 34, 'PERFMON': 38, 'BPF': 39}
DEVICES = {'null': 3, 'zero': 5, 'full': 7, 'random': 8, 'urandom': 9}
libc = ctypes.CDLL(None, use_errno=True)


def mount(*arguments):
    subprocess.run(['mount', *arguments], check=True)


def build(spec):
    root = spec['root']
    mount('--make-rprivate', '/')
    mount('--bind', root, root)
    mount('-t', 'proc', 'proc', f'{root}/proc')
    mount('-t', 'sysfs', '-o', 'ro', 'sysfs', f'{root}/sys')
    mount('-t', 'tmpfs', '-o', 'mode=0755', 'dev', f'{root}/dev')
    for name, minor in DEVICES.items():
        os.mknod(f'{root}/dev/{name}', 0o20666, os.makedev(1, minor))
    for one in spec['mounts']:
        target = root + one['path']
        mount('--rbind', one['source'], target)
        if one['readOnly']:
            mount('-o', 'remount,bind,ro', target)
    if spec['readOnlyRoot']:
        mount('-o', 'remount,bind,ro', root)


def join(pid):
    with open(f'/proc/{pid}/ns/mnt', encoding='utf-8') as file:
        if libc.setns(file.fileno(), CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), 'setns')


def confine(spec):
    os.chroot(spec['root'])
    os.chdir('/')
    kept = {CAPABILITIES[name] for name in spec['capabilities']}
    number = 0
    while libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0:
        if number not in kept and libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), 'PR_CAPBSET_DROP')
        number += 1
    if spec['noNewPrivileges'] and libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), 'PR_SET_NO_NEW_PRIVS')


if __name__ == '__main__':
    wanted = json.loads(sys.argv[1])
    if wanted.get('join'):
        join(wanted['join'])
    else:
        build(wanted)
    confine(wanted)
    os.execve('/usr/bin/' + wanted['arguments'][0], wanted['arguments'], {'PATH': '/usr/bin'})
