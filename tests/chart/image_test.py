#!/usr/bin/python3
"""The image's root: what is in it runs from it alone, and its SBOM names all of it."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shared  # noqa: E402
import cases  # noqa: E402

MAKE = os.path.join(shared.ROOT, 'deploy', 'image', 'make_root.py')
SBOM = 'usr/share/stockade/sbom.spdx.json'
# A release build has some 35 MiB; what it may have before somebody looks at why.
MOST_BYTES = 100 << 20


def inside(root, *command):
    done = subprocess.run(['/usr/sbin/chroot', root, *command], env={}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=60, check=False)
    return done.returncode, done.stdout


def runs_by_itself(root):
    for command, words in (('stockaded --version', 'stockaded '), ('stockade --version', 'stockade '),
                           ('stockade policy check /usr/share/stockade/policies/python-tool.yaml', ''),
                           ('stockaded --check', ': ok'), ('stockade rules check /usr/share/stockade/detections', '')):
        program, *arguments = command.split()
        status, output = inside(root, '/usr/bin/' + program, *arguments)
        if status or words not in output:
            yield f'{command}: {status} {output}'


def has_nothing_to_log_in_to(root):
    programs = [os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names
                if os.access(os.path.join(folder, name), os.X_OK) and not re.search(r'\.so(\.|$)', name)]
    if sorted(programs) != ['usr/bin/stockade', 'usr/bin/stockaded']:
        yield f'programs: {programs}'
    special = [name for folder, _, names in os.walk(root) for name in names if os.stat(os.path.join(folder, name), follow_symlinks=False).st_mode & 0o6000]
    if special:
        yield f'set-uid: {special}'
    size = sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(root) for name in names)
    print(f'    {size >> 20} MiB')
    if size > MOST_BYTES:
        yield f'{size} bytes'


def sbom_is_whole(root):
    with open(os.path.join(root, SBOM), encoding='utf-8') as file:
        sbom = json.load(file)
    for key in ('spdxVersion', 'dataLicense', 'SPDXID', 'name', 'documentNamespace', 'creationInfo'):
        if not sbom.get(key):
            yield f'no {key}'
    ids = [item['SPDXID'] for item in sbom['packages'] + sbom['files']] + ['SPDXRef-DOCUMENT']
    if len(ids) != len(set(ids)) or not all(re.fullmatch(r'SPDXRef-[A-Za-z0-9.-]+', name) for name in ids):
        yield 'identifiers are not each its own'
    for relation in sbom['relationships']:
        if relation['spdxElementId'] not in ids or relation['relatedSpdxElement'] not in ids:
            yield f'{relation}'
    listed = {file['fileName']: file['checksums'][0]['checksumValue'] for file in sbom['files']}
    notices = 0
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), root)
            if path == SBOM:
                continue
            if path.endswith('/copyright'):
                notices += 1  # copied once it is known whose
            elif f'./{path}' not in listed:
                yield f'{path} is not in it'
            else:
                with open(os.path.join(folder, name), 'rb') as file:
                    if hashlib.sha256(file.read()).hexdigest() != listed[f'./{path}']:
                        yield f'{path} is another'
    packages = {package['name']: package for package in sbom['packages']}
    print(f'    {len(packages)} packages, {len(listed)} files')
    # One of each way to be in the product, and none of the tests'.
    for name, how in {'libc6': 'beside it', 'libabsl-dev': 'linked in', 'libcli11-dev': 'compiled in', 'librdkafka': 'linked in',
                      'libbpf-dev': 'linked in', 'libssl3': 'beside it'}.items():
        if packages.get(name, {}).get('comment') != how or not packages[name]['versionInfo']:
            yield f'{name}: {packages.get(name)}'
    for name in ('libgtest-dev', 'libbenchmark-dev', 'libldns-dev'):
        if name in packages:
            yield f'{name} is of the tests'
    if notices < len(packages) - 3:
        yield f'{notices} notices of {len(packages)} packages'


def every_library_has_a_package(root):
    """Of the loader's own words: no library of the root is without its package, and the root has all that are loaded."""
    with open(os.path.join(root, SBOM), encoding='utf-8') as file:
        packages = {package['name'] for package in json.load(file)['packages']}
    loader = '/lib64/ld-linux-x86-64.so.2' if os.path.exists(root + '/lib64/ld-linux-x86-64.so.2') else '/lib/ld-linux-aarch64.so.1'
    status, output = inside(root, loader, '--list', '/usr/bin/stockaded')
    if status or 'not found' in output:
        yield f'{status} {output}'
    for path in re.findall(r'=> (/\S+)', output):
        owner = subprocess.run(['dpkg-query', '-S', path, '/usr' + path, os.path.realpath(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True, check=False).stdout.split(':')[0]
        if owner not in packages:
            yield f'{path} of {owner!r} is in no package'


def missing_library_is_seen(root):
    """What RunsByItself would say of a root that lacks one."""
    library = next(os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names if name.startswith('libzstd.so'))
    os.rename(library, library + '.away')
    try:
        if not list(runs_by_itself(root)):
            yield 'without a library it runs: it is not alone'
    finally:
        os.rename(library + '.away', library)


def main():
    scratch = tempfile.mkdtemp(prefix='stockade-image.')
    try:
        root = os.path.join(scratch, 'root')
        shared.must(MAKE, os.path.dirname(shared.BIN), root)
        return cases.run({'RunsByItself': lambda: runs_by_itself(root), 'NothingToLogInTo': lambda: has_nothing_to_log_in_to(root),
                          'SbomIsWhole': lambda: sbom_is_whole(root), 'EveryLibrary': lambda: every_library_has_a_package(root),
                          'MissingLibrary': lambda: missing_library_is_seen(root)})
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == '__main__':
    sys.exit(main())
