#!/usr/bin/python3
"""The real Kubernetes tools that the tests run, built from the Go modules of tools/*. tools.py NAME... builds what is not there.

Binaries are kept in STOCKADE_CACHE, keyed by their module's go.mod and go.sum: another version is another folder, and nothing is built
twice. The modules are committed as `go mod tidy` left them; nothing here changes them.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRESS_S = 30
VERSION = 'k8s.io/component-base/version.git'

# Module -> (packages, more linker flags). The API server refuses clients of no version, so it is told its own.
TOOLS = {
    'kyverno': (['github.com/kyverno/kyverno/cmd/cli/kubectl-kyverno'], ''),
    'helm': (['helm.sh/helm/v4/cmd/helm'], ''),
    'etcd': (['go.etcd.io/etcd/server/v3'], ''),
    'kube-apiserver': (['k8s.io/kubernetes/cmd/kube-apiserver', 'k8s.io/kubernetes/cmd/kubectl'],
                       f' -X {VERSION}Version=v1.35.4 -X {VERSION}Major=1 -X {VERSION}Minor=35'),
    'containerd': ([f'github.com/containerd/containerd/v2/cmd/{name}' for name in ('containerd', 'containerd-shim-runc-v2', 'ctr')] +
                   ['sigs.k8s.io/cri-tools/cmd/crictl', 'github.com/opencontainers/runc'],
                   ' -X github.com/containerd/containerd/v2/version.Version=v2.4.2'),
}
# Of containerd: snapshotters of file systems that the tests have not. Of runc: without it each pod with a seccomp profile would fail.
TAGS = {'containerd': 'no_btrfs,no_devmapper,no_zfs,seccomp'}
# Module -> (folder of its go.mod, where its CRDs are from, and their folder there). Those of Kyverno can be had without building it.
KYVERNO_CRDS = ('kyverno', 'github.com/kyverno/kyverno', 'config/crds/policies.kyverno.io')
CRDS = {
    'kyverno': KYVERNO_CRDS,
    'kyverno-crds': KYVERNO_CRDS,
    'prometheus-operator': ('prometheus-operator', 'github.com/prometheus-operator/prometheus-operator', 'example/prometheus-operator-crd'),
}
# promtool is 1,356 packages of Go, and Debian has it; but its package starts a server, so it is unpacked and not installed.
DEBIAN = {'prometheus': 'usr/bin/promtool'}
# Program -> (module, file name that `go install` gives it, or Debian)
PROGRAMS = {
    'kyverno': ('kyverno', 'kubectl-kyverno'),
    'etcd': ('etcd', 'server'),  # go.etcd.io/etcd/server/v3: Go leaves a version out of a program's name
    'kube-apiserver': ('kube-apiserver', 'kube-apiserver'),
    'promtool': ('prometheus', 'promtool'),
    'kubectl': ('kube-apiserver', 'kubectl'),
    **{name: ('containerd', name) for name in ('containerd', 'containerd-shim-runc-v2', 'ctr', 'crictl', 'runc')},
    'helm': ('helm', 'helm'),
}


def cache_dir():
    default = '/var/cache/stockade' if os.geteuid() == 0 else os.path.expanduser('~/.cache/stockade')
    return os.path.join(os.environ.get('STOCKADE_CACHE') or default, 'kubernetes-tools')


def module_dir(module):
    """Where the binaries of a module are, or will be."""
    if module in DEBIAN:
        return os.path.join(cache_dir(), f'{module}-debian')
    key = hashlib.sha256()
    for name in ('go.mod', 'go.sum'):
        with open(os.path.join(HERE, 'tools', CRDS.get(module, [module])[0], name), 'rb') as file:
            key.update(file.read())
    return os.path.join(cache_dir(), f'{module}-{key.hexdigest()[:16]}')


def path(program):
    """The program's path; an error where it is not built."""
    module, name = PROGRAMS[program]
    found = os.path.join(module_dir(module), name)
    if not os.path.exists(found):
        raise FileNotFoundError(f'{program} is not built: tests/kyverno/tools.py {module}')
    return found


def say(text):
    print(f'dev: {text}', file=sys.stderr, flush=True)


def find_go():
    go = shutil.which('go') or shutil.which('go', path='/usr/local/go/bin:/usr/lib/go-1.26/bin')
    if not go:
        sys.exit('dev: the Kubernetes tools are built with Go, and there is none: install Go 1.26 (or any from 1.21 on, which fetches it)')
    return go


def install(go, module, packages, flags, target):
    """go install with a word every PROGRESS_S seconds: -v names each package as it is compiled."""
    environment = {**os.environ, 'GOBIN': target, 'GOFLAGS': '-buildvcs=false -mod=readonly -p=' + os.environ.get('JOBS', str(os.cpu_count()))}
    command = ['nice', '-n', '19', go, 'install', '-v', '-trimpath', '-tags', TAGS.get(module, ''), '-ldflags', '-s -w' + flags] + packages
    start, told, compiled, last = time.monotonic(), time.monotonic(), 0, []
    with subprocess.Popen(command, cwd=os.path.join(HERE, 'tools', module), env=environment, stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            compiled += not line.startswith('go: downloading')
            last = (last + [line.rstrip()])[-20:]
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                say(f'{module}: {compiled} packages compiled in {told - start:.0f} s ({last[-1]})')
    if process.returncode:
        sys.exit('\n'.join(last + [f'dev: {module} does not build']))
    say(f'{module}: built in {time.monotonic() - start:.0f} s')


def copy_crds(go, module, target):
    """Kinds of others, for the API server to check objects by. A module that is there for them alone is fetched, and go.sum checks it."""
    folder_of_module, source, folder = CRDS[module]
    here = os.path.join(HERE, 'tools', folder_of_module)
    if module not in TOOLS:
        subprocess.run([go, 'mod', 'download', source], cwd=here, check=True, env={**os.environ, 'GOFLAGS': '-mod=readonly'})
    where = subprocess.run([go, 'list', '-m', '-f', '{{.Dir}}', source], cwd=here, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    shutil.copytree(os.path.join(where, folder), os.path.join(target, 'crds'))


def unpack(package, program, target):
    """One program out of a Debian package, which apt fetches and checks."""
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix='new.') as scratch:
        # The temporary folder is closed to apt's own user, which apt would complain of.
        subprocess.run(['apt-get', '-qq', '-o', 'APT::Sandbox::User=root', 'download', package], cwd=scratch, check=True)
        archive = next(name for name in os.listdir(scratch) if name.endswith('.deb'))
        subprocess.run(['dpkg-deb', '-x', archive, 'whole'], cwd=scratch, check=True)
        os.makedirs(os.path.join(scratch, 'bin'))
        os.rename(os.path.join(scratch, 'whole', program), os.path.join(scratch, 'bin', os.path.basename(program)))
        os.rename(os.path.join(scratch, 'bin'), target)


def build(module):
    target = module_dir(module)
    if os.path.isdir(target):
        return
    os.makedirs(cache_dir(), exist_ok=True)
    if module in DEBIAN:
        say(f'fetching {module} from Debian')
        unpack(module, DEBIAN[module], target)
        return
    packages, flags = TOOLS.get(module, ([], ''))
    say(f'building {module} for the tests (some minutes; kept in {target})' if packages else f'fetching {module}')
    # Published by one rename: a build that was cut short leaves nothing that looks finished.
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix='new.') as scratch:
        binaries = os.path.join(scratch, 'bin')
        if packages:
            install(find_go(), module, packages, flags, binaries)
        if module in CRDS:
            copy_crds(find_go(), module, binaries)
        os.rename(binaries, target)


if __name__ == '__main__':
    for wanted in sys.argv[1:] or {**TOOLS, **CRDS, **DEBIAN}:
        build(wanted)
