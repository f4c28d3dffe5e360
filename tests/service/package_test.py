#!/usr/bin/python3
"""The Debian package, in a chroot over this machine's own files: install, use, upgrade with a changed conffile, remove, purge.

package_test.py BUILD_DIR. Nothing of the machine is written to: the chroot is an overlay on a tmpfs, in a mount namespace of its own. systemd
is played by scripts that write down what they are told.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

TIMEOUT_S = 900
# What dpkg, adduser and systemd's helpers themselves keep or touch.
OTHERS = re.compile(r'^/(var/(lib/(dpkg|apt|systemd/deb-systemd-helper[^/]*)|cache|log|backups)|etc/(group|gshadow|passwd|shadow|subuid|subgid)-?$'
                    r'|etc/\.pwd\.lock|run|tmp|proc|dev|sys|fake)(/|$)')
# lintian's tags that are no fault here.
LINTIAN_LEFT = {
    'embedded-library': 'zlib is linked from its archive, so that stockade starts fast (cmake/StockadeDependencies.cmake)',
    'statically-linked-binary': 'as before',
    'shared-library-lacks-prerequisites': 'what lintian takes a static-pie for',
    'initial-upload-closes-no-bugs': 'it is in no archive',
}


def run(*command, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S,
                          check=False, **more)
    return done.returncode, done.stdout


def must(*command, **more):
    status, output = run(*command, **more)
    if status:
        raise SystemExit(f'{" ".join(command)}: {status}\n{output}')
    return output


def expect(condition, text):
    if not condition:
        raise SystemExit(text)


class Chroot:
    def __init__(self, scratch):
        self.upper = os.path.join(scratch, 'tmpfs', 'upper')
        self.root = os.path.join(scratch, 'root')
        work = os.path.join(scratch, 'tmpfs', 'work')
        os.makedirs(os.path.join(scratch, 'tmpfs'))
        must('mount', '-t', 'tmpfs', '-o', 'size=2g', 'stockade-package', os.path.join(scratch, 'tmpfs'))
        for path in (self.upper, work, self.root):
            os.makedirs(path)
        must('mount', '-t', 'overlay', '-o', f'lowerdir=/,upperdir={self.upper},workdir={work}', 'stockade-package', self.root)
        for name in ('proc', 'dev'):
            must('mount', '--bind', f'/{name}', os.path.join(self.root, name))
        # Of their own: what the machine has there is none of this chroot's.
        for name in ('run', 'tmp', 'sys'):
            must('mount', '-t', 'tmpfs', 'stockade-package', os.path.join(self.root, name))
        os.makedirs(os.path.join(self.root, 'run', 'systemd', 'system'))
        os.makedirs(os.path.join(self.root, 'fake'))
        for name in ('systemctl', 'deb-systemd-invoke'):
            self.write(f'/fake/{name}', f'#!/bin/sh\necho "{name} $*" >>/fake/told\n', 0o755)

    def write(self, path, text, mode=0o644):
        with open(self.root + path, 'w', encoding='utf-8') as file:
            file.write(text)
        os.chmod(self.root + path, mode)

    def read(self, path):
        with open(self.root + path, encoding='utf-8') as file:
            return file.read()

    def sh(self, script, wanted=0):
        status, output = run('chroot', self.root, '/bin/sh', '-c', script,
                             env={'PATH': '/fake:/usr/sbin:/usr/bin:/sbin:/bin', 'DEBIAN_FRONTEND': 'noninteractive', 'LC_ALL': 'C.UTF-8'})
        expect(status == wanted, f'{script}: {status}, not {wanted}\n{output}')
        return output

    def told(self):
        """What systemd was told since the last call."""
        path = self.root + '/fake/told'
        lines = self.read('/fake/told').splitlines() if os.path.exists(path) else []
        if lines:
            os.remove(path)
        return lines

    def changed(self):
        """Paths that differ from the machine's, but for those of others."""
        out = set()
        for directory, _, files in os.walk(self.upper):
            for name in files:
                path = '/' + os.path.relpath(os.path.join(directory, name), self.upper)
                if not OTHERS.match(path):
                    out.add(path)
        return out


def package(build, version):
    where = tempfile.mkdtemp(prefix='stockade-deb.', dir='.')
    must('cpack', '-G', 'DEB', '--config', os.path.join(build, 'CPackConfig.cmake'), '-D', f'CPACK_PACKAGE_VERSION={version}', '-D',
         f'CPACK_OUTPUT_FILE_PREFIX={os.path.abspath(where)}', '-B', os.path.abspath(where), cwd=build)
    (deb,) = glob.glob(os.path.join(where, '*.deb'))
    return os.path.abspath(deb)


def installs(chroot, deb):
    shutil.copy(deb, chroot.root + '/tmp/first.deb')
    before = chroot.changed()
    # A machine that has had Stockade's sources has its dependencies; the group must be made by the package.
    chroot.sh('delgroup --quiet --system stockade >/dev/null 2>&1; exit 0')
    chroot.sh('dpkg -i /tmp/first.deb')
    told = chroot.told()
    expect('deb-systemd-invoke start stockaded.service' in told, f'the agent is not started: {told}')
    expect(re.search(r'^stockade:', chroot.read('/etc/group'), re.M), 'there is no group stockade')
    return before


def works(chroot):
    expect('0.9.1' not in chroot.sh('stockade --version'), 'the version is that of the package of the upgrade')
    expect('/etc/stockade/config.yaml: ok' in chroot.sh('stockaded --check'), 'the default configuration is not well')
    expect('allow' in chroot.sh('stockade policy explain --policy python-tool --exec /usr/bin/python3'), 'a shipped policy is not found by its name')
    chroot.sh('stockade policy check /usr/share/stockade/policies/*.yaml')
    chroot.sh('stockade rules check /usr/share/stockade/detections')
    for name in ('stockade.1', 'stockaded.8'):
        page = glob.glob(f'{chroot.root}/usr/share/man/man?/{name}.gz')[0][len(chroot.root):]
        complaints = chroot.sh(f'man --warnings -l {page} 2>&1 >/dev/null')
        expect(not complaints, f'{name}: {complaints[:2000]}')
        expect('--config' in chroot.sh(f'man -l {page}'), f'{name} does not name its options')
    completed = chroot.sh("bash -c '. /usr/share/bash-completion/completions/stockade; COMP_WORDS=(stockade po); COMP_CWORD=1; "
                          "$(complete -p stockade | sed \"s/.*-F //; s/ .*//\") stockade po stockade; echo ${COMPREPLY[@]}'")
    expect('policy' in completed, f'bash completes "po" to "{completed}"')
    for path in ('/usr/share/zsh/vendor-completions/_stockade', '/usr/share/fish/vendor_completions.d/stockade.fish', '/lib/systemd/system/stockaded.service'):
        expect(os.path.exists(chroot.root + path), f'{path} is missing')


def upgrades(chroot, deb):
    changed = 'kills_per_minute: 7\n'
    chroot.write('/etc/stockade/config.yaml', changed)
    shutil.copy(deb, chroot.root + '/tmp/second.deb')
    chroot.sh('dpkg -i /tmp/second.deb')
    told = chroot.told()
    expect('deb-systemd-invoke try-restart stockaded.service' in told, f'an upgrade does not restart the agent: {told}')
    expect(not any('stop' in line for line in told), f'an upgrade stops the agent before the new one is there: {told}')
    expect(chroot.read('/etc/stockade/config.yaml') == changed, 'an upgrade has overwritten the configuration')
    chroot.sh('stockaded --check')


def leaves_nothing(chroot, before):
    # As an agent would have left it.
    chroot.sh('mkdir -p /var/lib/stockade/spool /run/stockade/sandboxes; echo x >/var/lib/stockade/node.key')
    chroot.sh('dpkg -r stockade')
    told = chroot.told()
    expect('deb-systemd-invoke stop stockaded.service' in told, f'a removal does not stop the agent: {told}')
    expect(os.path.exists(chroot.root + '/etc/stockade/config.yaml'), 'a removal takes the configuration along')
    expect(os.path.exists(chroot.root + '/var/lib/stockade/node.key'), 'a removal takes what is kept along')
    chroot.sh('dpkg -P stockade')
    left = chroot.changed() - before
    expect(not left, f'a purge leaves {sorted(left)}')
    for path in ('/etc/stockade', '/var/lib/stockade', '/run/stockade', '/usr/share/stockade', '/usr/share/doc/stockade'):
        expect(not os.path.exists(chroot.root + path), f'a purge leaves {path}')
    expect(not re.search(r'^stockade:', chroot.read('/etc/group'), re.M), 'a purge leaves the group')


def lintian(deb):
    status, output = run('lintian', '--allow-root', '--fail-on', 'error', '--suppress-tags', ','.join(LINTIAN_LEFT), deb)
    expect(status == 0, f'lintian: {output}')
    return [line for line in output.splitlines() if line.startswith(('E:', 'W:'))]


def main():
    build = os.path.abspath(sys.argv[1])
    if os.environ.get('STOCKADE_PACKAGE_TEST') != 'inside':
        os.execvpe('unshare', ['unshare', '--mount', '--propagation', 'private', sys.executable, *sys.argv], {**os.environ, 'STOCKADE_PACKAGE_TEST': 'inside'})
    with tempfile.TemporaryDirectory(prefix='stockade-package.', ignore_cleanup_errors=True) as scratch:
        os.chdir(scratch)
        first, second = package(build, '0.9.0'), package(build, '0.9.1')
        warnings = lintian(first)
        chroot = Chroot(scratch)
        try:
            before = installs(chroot, first)
            works(chroot)
            upgrades(chroot, second)
            leaves_nothing(chroot, before)
        finally:
            run('umount', '-R', chroot.root)
            run('umount', os.path.join(scratch, 'tmpfs'))
        print(f'{os.path.getsize(first) >> 10} KiB; {len(warnings)} warnings of lintian', *warnings, sep='\n')


if __name__ == '__main__':
    main()
