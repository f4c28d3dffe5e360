#!/usr/bin/python3
"""The root of the agent's image: make_root.py BUILD_DIR TARGET. Programs, the libraries that they are linked to, what ships, and nothing to
log in to: no shell, no package manager. deploy/Dockerfile puts it into an image; the tests of the chart run in it as it is.
"""

import glob
import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import sbom  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(HERE))
PROGRAMS = ('stockade', 'stockaded')
SHIPPED = {'rules/policies': '*.yaml', 'rules/detections': '**/*.yaml', 'rules/schema': '*.json'}
# What the pod mounts over, and what a kernel is seen through.
FOLDERS = ('dev', 'proc', 'sys', 'tmp', 'run/stockade', 'var/run', 'var/lib/stockade', 'var/log/stockade', 'etc/stockade/policies.d',
           'etc/stockade/rules.d', 'usr/share/stockade/objects')
FILES = {'etc/passwd': 'root:x:0:0:root:/:/nologin\n', 'etc/group': 'root:x:0:\n',
         # Brokers are found by name.
         'etc/nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files dns\n'}
# Of hosts whose exporter trusts the usual authorities.
AUTHORITIES = '/etc/ssl/certs/ca-certificates.crt'


def libraries(program):
    """Paths by which the loader finds them, the loader's own among them; none of a static program."""
    done = subprocess.run(['ldd', program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if 'statically linked' in done.stdout or 'not a dynamic executable' in done.stdout:
        return []
    if done.returncode or 'not found' in done.stdout:
        raise SystemExit(f'ldd {program}: {done.stdout}')
    return re.findall(r'(/\S+) \(0x', done.stdout)


def copy(source, target, mode=None):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(source, target)
    os.chmod(target, mode or (os.stat(source).st_mode & 0o755))


def make(build_dir, target):
    if os.path.exists(target) and os.listdir(target):
        raise SystemExit(f'{target} is not empty')
    for folder in FOLDERS:
        os.makedirs(os.path.join(target, folder), exist_ok=True)
    for name, text in FILES.items():
        with open(os.path.join(target, name), 'w', encoding='utf-8') as file:
            file.write(text)
    for program in PROGRAMS:
        source = os.path.join(build_dir, 'bin', program)
        copy(source, os.path.join(target, 'usr/bin', program), 0o755)
        subprocess.run(['strip', '--strip-unneeded', os.path.join(target, 'usr/bin', program)], check=True)
        for library in libraries(source):
            # A copy where the loader looks, whatever links led there.
            copy(os.path.realpath(library), target + library, 0o755)
    for folder, pattern in SHIPPED.items():
        for path in glob.glob(os.path.join(SOURCE, folder, pattern), recursive=True):
            inside = os.path.relpath(path, os.path.join(SOURCE, 'rules'))
            copy(path, os.path.join(target, 'usr/share/stockade', inside), 0o644)
    for path in glob.glob(os.path.join(SOURCE, 'LICENSES', '*')) + [os.path.join(SOURCE, 'LICENSE')]:
        copy(path, os.path.join(target, 'usr/share/doc/stockade', os.path.basename(path)), 0o644)
    if os.path.exists(AUTHORITIES):
        copy(AUTHORITIES, target + AUTHORITIES, 0o644)
    document = sbom.document(build_dir, target)
    for package in sbom.debian_packages(document):
        notice = f'/usr/share/doc/{package}/copyright'
        if os.path.exists(notice):
            copy(os.path.realpath(notice), target + notice, 0o644)
    sbom.write(document, os.path.join(target, 'usr/share/stockade/sbom.spdx.json'))


if __name__ == '__main__':
    make(*sys.argv[1:])
