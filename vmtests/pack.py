"""What goes into a guest: collects files, libraries and modules and writes an initramfs.

The archive is the kernel's "newc" cpio (Documentation/driver-api/early-userspace/buffer-format.rst), written here: no file of the tree
has to be copied into a staging folder first, and everything is root's. It is not compressed: qemu hands it to the guest as one block,
while the guest would unpack it slowly.
"""

import fnmatch
import glob
import lzma
import os
import re
import stat
import subprocess


class PackError(Exception):
    """A payload or a list that is wrong; the message says where."""


class Archive:
    """Entries by guest path, folders made as needed; the last to add a path wins."""

    def __init__(self):
        self.entries = {}
        # Debian's merged /usr: a policy names /usr/bin/x, and a program's loader is /lib64/ld-linux-x86-64.so.2.
        self.merged = {'bin': 'usr/bin', 'sbin': 'usr/sbin', 'lib': 'usr/lib', 'lib64': 'usr/lib64'}
        for name, target in self.merged.items():
            self.add_dir('/' + target, 0o755)
            self.entries[name] = (stat.S_IFLNK | 0o777, target.encode())

    def _key(self, path):
        path = os.path.normpath(path).lstrip('/')
        first, _, rest = path.partition('/')
        if rest and first in self.merged:
            path = self.merged[first] + '/' + rest
        return path

    def _parents(self, key):
        parent = os.path.dirname(key)
        if parent and parent not in self.entries:
            self._parents(parent)
            self.entries[parent] = (stat.S_IFDIR | 0o755, b'')

    def add_dir(self, path, mode):
        key = self._key(path)
        self._parents(key)
        self.entries[key] = (stat.S_IFDIR | mode, b'')

    def add_link(self, path, target):
        key = self._key(path)
        self._parents(key)
        self.entries[key] = (stat.S_IFLNK | 0o777, target.encode())

    def add_bytes(self, path, data, mode=0o644):
        key = self._key(path)
        self._parents(key)
        self.entries[key] = (stat.S_IFREG | mode, data)

    def add_file(self, path, source):
        """The content is read when the archive is written."""
        key = self._key(path)
        self._parents(key)
        self.entries[key] = (stat.S_IFREG | stat.S_IMODE(os.stat(source).st_mode), source)

    def write(self, path):
        with open(path, 'wb') as out:
            # Parents sort before what they hold.
            for number, key in enumerate(sorted(self.entries), 1):
                mode, content = self.entries[key]
                if isinstance(content, str):
                    with open(content, 'rb') as source:
                        content = source.read()
                _write_entry(out, number, key, mode, content)
            # /dev/console has to be there before init can mount anything.
            _write_entry(out, len(self.entries) + 1, 'dev/console', stat.S_IFCHR | 0o600, b'', device=(5, 1))
            _write_entry(out, 0, 'TRAILER!!!', 0, b'')


def _write_entry(out, inode, name, mode, data, device=(0, 0)):
    encoded = name.encode() + b'\0'
    fields = (inode, mode, 0, 0, 2 if stat.S_ISDIR(mode) else 1, 0, len(data), 0, 0, device[0], device[1], len(encoded), 0)
    header = b'070701' + b''.join(b'%08X' % field for field in fields)
    out.write(header + encoded + b'\0' * (-(len(header) + len(encoded)) % 4))
    out.write(data + b'\0' * (-len(data) % 4))


def libraries(path):
    """The shared libraries of a binary as the loader names them, the loader included; none for a static one."""
    run = subprocess.run(['ldd', path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if 'not found' in run.stdout:
        raise PackError(f'{path}: a library is missing on this machine: {run.stdout}')
    return sorted(set(re.findall(r'(?:=>\s+|^\s+)(/\S+)', run.stdout, re.MULTILINE)))


class Packer:
    """Fills one Archive from payloads.list and the build."""

    def __init__(self, source_dir, build_dir, kernel_dir):
        self.source_dir, self.build_dir, self.kernel_dir = source_dir, build_dir, kernel_dir
        self.archive = Archive()
        self.modules = []
        self._payloads = _read_payloads(os.path.join(source_dir, 'vmtests', 'payloads.list'))
        self._done = set()
        for path, mode in (('/dev', 0o755), ('/proc', 0o555), ('/sys', 0o555), ('/tmp', 0o1777), ('/run', 0o755), ('/etc', 0o755),
                           ('/root', 0o700), ('/home', 0o755), ('/var/lib', 0o755), ('/var/tmp', 0o1777), ('/mnt', 0o755),
                           ('/stockade/bin/tests', 0o755), ('/stockade/guest/bin', 0o755)):
            self.archive.add_dir(path, mode)
        self.archive.add_file('/init', os.path.join(source_dir, 'vmtests', 'guest', 'init'))
        self.archive.add_file('/stockade/guest/busybox', '/usr/bin/busybox')
        self.add_payload('base')

    def add_payload(self, name):
        if name in self._done:
            return
        self._done.add(name)
        if name not in self._payloads:
            raise PackError(f'vmtests/payloads.list has no payload {name!r}')
        for kind, args, where in self._payloads[name]:
            handler = getattr(self, '_add_' + kind, None)
            if handler is None:
                raise PackError(f'{where}: unknown kind {kind!r}')
            try:
                handler(args)
            except (PackError, OSError, ValueError) as error:
                raise PackError(f'{where}: {error}') from error

    def add_test(self, name):
        path = os.path.join(self.build_dir, 'bin', 'tests', name)
        self._add_program('/stockade/bin/tests/' + name, self._stripped(path))

    def write(self, path, run_list):
        self.archive.add_bytes('/stockade/guest/run.list', ''.join(line + '\n' for line in run_list).encode())
        self.archive.add_bytes('/stockade/guest/modules.list', ''.join(name + '\n' for name in self.modules).encode())
        self.archive.write(path)

    def _glob(self, pattern):
        full = os.path.join(self.source_dir, pattern)
        found = sorted(glob.glob(full))
        if not found:
            raise PackError(f'{pattern} does not exist')
        return found

    def _add_program(self, guest_path, path):
        self.archive.add_file(guest_path, path)
        for library in libraries(path):
            self.archive.add_file(library, library)

    def _stripped(self, path):
        """Debug information is most of a test binary and of no use in the guest. Kept beside the build as long as it is current."""
        kept = os.path.join(self.build_dir, 'vm-stripped', os.path.basename(path))
        if not os.path.exists(kept) or os.stat(kept).st_mtime_ns < os.stat(path).st_mtime_ns:
            os.makedirs(os.path.dirname(kept), exist_ok=True)
            temporary = f'{kept}.{os.getpid()}.{id(self)}'
            subprocess.run(['strip', '--strip-debug', '-o', temporary, path], check=True)
            os.replace(temporary, kept)
        return kept

    def _add_cmd(self, args):
        for pattern in args:
            for path in self._glob(pattern):
                self._add_program(path, path)

    def _add_bin(self, args):
        for pattern in args:
            for path in self._glob(os.path.join(self.build_dir, 'bin', pattern)):
                if os.path.isfile(path):
                    relative = os.path.relpath(path, os.path.join(self.build_dir, 'bin'))
                    self._add_program('/stockade/bin/' + relative, self._stripped(path))

    def _add_file(self, args):
        source, guest_path = args
        self.archive.add_file(guest_path, self._glob(source)[0])

    def _add_dir(self, args):
        self.archive.add_dir(args[0], int(args[1], 8))

    def _add_link(self, args):
        self.archive.add_link(args[0], args[1])

    def _add_use(self, args):
        for name in args:
            self.add_payload(name)

    def _add_tree(self, args):
        source, dest, excluded = args[0], args[1], [arg[1:] for arg in args[2:]]
        top = os.path.join(self.source_dir, source)
        # A folder of the tree that has not landed yet is no error; one of the machine is.
        if not os.path.isdir(top):
            if os.path.isabs(source):
                raise PackError(f'{source} does not exist')
            return
        for folder, names, files in os.walk(top):
            names[:] = [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in excluded)]
            guest = os.path.join(dest, os.path.relpath(folder, top))
            self.archive.add_dir(guest, stat.S_IMODE(os.stat(folder).st_mode))
            for name in files + [name for name in names if os.path.islink(os.path.join(folder, name))]:
                path = os.path.join(folder, name)
                if any(fnmatch.fnmatch(name, pattern) for pattern in excluded):
                    continue
                if os.path.islink(path):
                    self.archive.add_link(os.path.join(guest, name), os.readlink(path))
                elif os.path.isfile(path):
                    self.archive.add_file(os.path.join(guest, name), path)

    def _add_module(self, args):
        releases = glob.glob(os.path.join(self.kernel_dir, 'lib', 'modules', '*'))
        if not releases:
            return
        dependencies = _read_modules_dep(releases[0])
        for name in args:
            # Not among the files: built into this kernel (or absent from it: then the test that needs it says so).
            path, needs = dependencies.get(name, (None, []))
            for file in list(reversed(needs)) + ([path] if path else []):
                self._add_module_file(os.path.join(releases[0], file))

    def _add_module_file(self, path):
        name = re.sub(r'\.ko(\.xz)?$', '.ko', os.path.basename(path))
        if name in self.modules:
            return
        self.modules.append(name)
        # Busybox's insmod does not unpack.
        if path.endswith('.xz'):
            with lzma.open(path) as packed:
                self.archive.add_bytes('/stockade/guest/modules/' + name, packed.read())
        else:
            self.archive.add_file('/stockade/guest/modules/' + name, path)


def _read_modules_dep(release_dir):
    """{module: (its file, the files it needs, nearest first)}; names with - and _ are the same."""
    table = {}
    with open(os.path.join(release_dir, 'modules.dep'), encoding='utf-8') as lines:
        for line in lines:
            path, _, needs = line.partition(':')
            name = re.sub(r'\.ko(\.xz)?$', '', os.path.basename(path)).replace('-', '_')
            table[name] = (path, needs.split())
    return table


def _read_payloads(path):
    payloads = {}
    with open(path, encoding='utf-8') as lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith('#'):
                continue
            where = f'vmtests/payloads.list:{number}'
            if len(words) < 3:
                raise PackError(f'{where}: NAME, KIND and an argument are needed')
            payloads.setdefault(words[0], []).append((words[1], words[2:], where))
    return payloads
