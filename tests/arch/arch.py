#!/usr/bin/python3
"""Checks the shape of the tree: include edges, cycles, libraries, sizes, names. arch.py ROOT prints what is wrong and where.

Each check is one result in STOCKADE_RESULTS (see stockade_script_test in cmake/StockadeRoom.cmake).
"""

import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rooms as table  # noqa: E402

CODE = ('.c', '.cc', '.h', '.def')
MAX_LINES = 500
# BPF_OBJ_NAME_LEN is 16 with the final zero (include/uapi/linux/bpf.h); the kernel cuts the rest.
MAX_BPF_NAME = 15
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
TEST_FILE = re.compile(r'_(test|fuzz|benchmark)\.cc$|_test_[a-z]+\.cc$')
# Top-level folders by which a quoted include is one of ours.
OURS = ('bpf', 'userspace', 'exporters', 'tests', 'vmtests')


def tree_files(root):
    """What git knows or would add, relative to root; a tree without git (the negative tests) is walked."""
    if os.path.exists(os.path.join(root, '.git')):
        out = subprocess.run(['git', '-C', root, 'ls-files', '-co', '--exclude-standard', '-z'], check=True, stdout=subprocess.PIPE)
        names = [name for name in out.stdout.decode().split('\0') if name]
        return sorted(name for name in names if os.path.isfile(os.path.join(root, name)))
    found = []
    for folder, _, files in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return sorted(found)


def read(root, name):
    with open(os.path.join(root, name), encoding='utf-8', errors='replace') as file:
        return file.read()


def room_of(path):
    """The room a file or an include path belongs to; None for what is in no room."""
    parts = path.split('/')
    if parts[0] in ('exporters', 'tests', 'vmtests'):
        return parts[0]
    if parts[0] in ('bpf', 'userspace') and len(parts) > 2:
        return '/'.join(parts[:2])
    return None


class Tree:
    def __init__(self, root):
        self.root = os.path.abspath(root)
        self.files = tree_files(self.root)
        self.includes = []  # (file, line number, bracket, target)
        for name in self.files:
            if name.endswith(CODE) and name.split('/')[0] in OURS:
                for number, line in enumerate(read(self.root, name).splitlines(), 1):
                    match = INCLUDE.match(line)
                    if match:
                        self.includes.append((name, number, match.group(1), match.group(2)))

    def is_ours(self, bracket, target):
        # bpf/bpf_helpers.h and its like are libbpf's, and in angle brackets.
        return bracket == '"' and target.split('/')[0] in OURS and not target.endswith('.skel.h')


def check_rooms(tree):
    """Every folder with code is a room of the table."""
    for name in tree.files:
        if name.endswith(CODE) and name.split('/')[0] in OURS:
            room = room_of(name)
            if room not in table.ROOMS:
                yield f'{name}: {room or "a file outside any room"} is not in tests/arch/rooms.py'


def check_edges(tree):
    """Every include of ours is an edge of the table."""
    for name, number, bracket, target in tree.includes:
        if not tree.is_ours(bracket, target):
            continue
        source_room, target_room = room_of(name), room_of(target)
        if source_room not in table.ROOMS or source_room == target_room:
            continue
        allowed = table.ROOMS[source_room]
        if TEST_FILE.search(name):
            allowed = allowed | table.TEST_EDGES.get(source_room, set())
        if target_room is None:
            yield f'{name}:{number}: "{target}" is in no room'
        elif target_room in ('tests', 'vmtests'):
            yield f'{name}:{number}: includes "{target}": only tests may include tests'
        elif not allowed & {'*', target_room, target}:
            yield f'{name}:{number}: {source_room} must not include {target_room} ("{target}")'


def check_cycles(tree):
    """The edges that exist form no cycle. The table has none either: it is checked with them."""
    edges = {}
    for name, _, bracket, target in tree.includes:
        source_room, target_room = room_of(name), room_of(target)
        if tree.is_ours(bracket, target) and source_room and target_room and source_room != target_room:
            edges.setdefault(source_room, set()).add(target_room)
    for room, allowed in table.ROOMS.items():
        edges.setdefault(room, set()).update(room_of(other) or other for other in allowed - {'*'})
    done, path = set(), []

    def visit(room):
        if room in path:
            yield ' -> '.join(path[path.index(room):] + [room])
        elif room not in done:
            path.append(room)
            for other in sorted(edges.get(room, ())):
                yield from visit(other)
            path.pop()
            done.add(room)

    for room in sorted(edges):
        yield from visit(room)


def check_include_style(tree):
    """Ours are included by path from the root, so that grep finds every user."""
    libraries = ('absl/', 'google/', 'gtest/', 'gmock/', 'benchmark/', 're2/', 'yaml-cpp/', 'CLI/')
    for name, number, bracket, target in tree.includes:
        if bracket == '"' and target.split('/')[0] not in OURS and not target.startswith(libraries):
            yield f'{name}:{number}: "{target}" is not a path from the root (or a library: use <{target}>)'


def check_libraries(tree):
    for name, number, _, target in tree.includes:
        for pattern, allowed in table.LIBRARIES.items():
            room = room_of(name)
            if re.fullmatch(pattern, target) and room not in allowed:
                yield f'{name}:{number}: {room} must not include {target}; it belongs to {", ".join(sorted(allowed))}'


def check_one_skeleton(tree):
    """Every file that includes the skeleton gets a copy of the whole object."""
    users = sorted({name for name, _, _, target in tree.includes if target.endswith('/stockade.skel.h') and room_of(name) != 'tests'})
    if len(users) > 1:
        yield f'the skeleton is included by {len(users)} files: {", ".join(users)}'


def check_file_size(tree):
    for name in tree.files:
        if name.split('/')[0] in ('bpf', 'userspace', 'exporters') and name.endswith(CODE + ('.proto', '.py', '.sh')):
            lines = read(tree.root, name).count('\n')
            if lines > MAX_LINES:
                yield f'{name}: {lines} lines, at most {MAX_LINES}: split by subject'


def check_machine_paths(tree):
    """No path of the machine that the tree was written on: the checkout's own, its neighbours'."""
    parent = os.path.dirname(tree.root)
    needles = {tree.root}
    # A checkout in a folder that every machine has (/tmp, a home) says nothing about its neighbours.
    if parent not in ('/', '/tmp', '/var/tmp', '/root', '/home', '/usr', '/opt', '/srv'):
        needles.update(os.path.join(parent, name) for name in os.listdir(parent))
    pattern = re.compile('(?<![A-Za-z0-9_.}])(' + '|'.join(re.escape(needle) for needle in sorted(needles)) + r')(?![A-Za-z0-9_-])')
    for name in tree.files:
        text = read(tree.root, name)
        for number, line in enumerate(text.splitlines(), 1):
            match = pattern.search(line)
            if match:
                yield f'{name}:{number}: {match.group(1)} is a path of this machine'


PROGRAM = re.compile(r'SEC\("(?!license|version|\.maps|\.rodata|\.data|\.bss)[^"]+"\)\s*(?:\w+\s+)*?int\s+(?:BPF_\w+\(\s*(\w+)|(\w+)\s*\()')
MAP = re.compile(r'(\w+)\s+SEC\("\.maps"\)')


def check_bpf_names(tree):
    for name in tree.files:
        if name.startswith('bpf/') and name.endswith(CODE):
            text = read(tree.root, name)
            for pattern, kind in ((PROGRAM, 'program'), (MAP, 'map')):
                for match in pattern.finditer(text):
                    found = next(group for group in match.groups() if group)
                    if len(found) > MAX_BPF_NAME:
                        number = text.count('\n', 0, match.start()) + 1
                        yield f'{name}:{number}: {kind} name {found} has {len(found)} characters, the kernel keeps {MAX_BPF_NAME}'


CHECKS = {
    'Rooms': check_rooms,
    'Edges': check_edges,
    'Cycles': check_cycles,
    'IncludeStyle': check_include_style,
    'Libraries': check_libraries,
    'OneSkeleton': check_one_skeleton,
    'FileSize': check_file_size,
    'MachinePaths': check_machine_paths,
    'BpfNames': check_bpf_names,
}


def main():
    tree = Tree(sys.argv[1])
    failed = 0
    lines = []
    for name, check in CHECKS.items():
        problems = list(check(tree))
        failed += bool(problems)
        for problem in problems:
            print(f'{name}: {problem}')
        first = problems[0] + (f' (and {len(problems) - 1} more)' if len(problems) > 1 else '') if problems else ''
        lines.append(f"{'failed' if problems else 'passed'}\t{name}\t{first}\n")
    # An empty listing would pass everything.
    if not tree.includes:
        print('no include found: is this the tree?')
        failed += 1
    if 'STOCKADE_RESULTS' in os.environ:
        with open(os.environ['STOCKADE_RESULTS'], 'a', encoding='utf-8') as out:
            out.writelines(lines)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
