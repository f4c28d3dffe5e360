#!/usr/bin/python3
"""Negative tests of arch.py: each check must find its fault in a made-up tree, and nothing in a clean one."""

import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import arch  # noqa: E402

CLEAN = {
    'userspace/base/status.h': '#pragma once\n#include "absl/status/status.h"\n#include <string>\n',
    'userspace/model/event.h': '#include "userspace/base/status.h"\n#include "bpf/wire/kinds.h"\n',
    'userspace/kernel/sensor.cc': '#include <bpf/libbpf.h>\n#include "bpf/stockade.skel.h"\n#include "userspace/model/event.h"\n',
    'userspace/pipeline/run.cc': '#include "exporters/exporter.h"\n',
    'userspace/kernel/sensor_root_test.cc': '#include "userspace/policy/parse.h"\n',
    'userspace/policy/parse.h': '',
    'exporters/exporter.h': '#include "userspace/model/event.h"\n',
    'bpf/wire/kinds.h': '\n',
    'bpf/hooks/exec.bpf.c': '#include <bpf/bpf_helpers.h>\n#include "bpf/wire/kinds.h"\n'
                            'struct { int x; } watched SEC(".maps");\n'
                            'SEC("lsm/file_open")\nint BPF_PROG(file_open_chk, void *f) { return 0; }\n'
                            'SEC("tp_btf/x") int short_name(void *c) { return 0; }\n'
                            'char LICENSE[] SEC("license") = "Dual BSD/GPL";\n',
}

# (check that must speak, file, content)
FAULTS = [
    ('Rooms', 'userspace/util/x.h', ''),
    ('Rooms', 'userspace/stray.h', ''),
    ('Edges', 'userspace/model/a.cc', '#include "userspace/kernel/sensor.h"\n'),
    ('Edges', 'userspace/kernel/a.cc', '#include "userspace/policy/parse.h"\n'),
    ('Edges', 'userspace/model/a_test.cc', '#include "userspace/policy/parse.h"\n'),
    ('Edges', 'userspace/base/a.cc', '  #  include "userspace/model/event.h"\n'),
    ('Edges', 'userspace/pipeline/a.cc', '#include "exporters/kafka/kafka.h"\n'),
    ('Edges', 'userspace/cmd/a.cc', '#include "tests/live/helper.h"\n'),
    ('Edges', 'userspace/decode/a.cc', '#include "bpf/lib/path.h"\n'),
    ('Edges', 'bpf/wire/a.h', '#include "bpf/lib/path.h"\n'),
    ('Cycles', 'userspace/base/a.h', '#include "userspace/model/event.h"\n'),
    ('IncludeStyle', 'userspace/base/a.cc', '#include "status.h"\n'),
    ('IncludeStyle', 'userspace/base/a.cc', '#include "../base/status.h"\n'),
    ('Libraries', 'userspace/sandbox/a.cc', '#include <bpf/bpf.h>\n'),
    ('Libraries', 'userspace/model/a.cc', '#include <yaml-cpp/yaml.h>\n'),
    ('Libraries', 'userspace/cmd/a.cc', '#include "bpf/stockade.skel.h"\n'),
    ('OneSkeleton', 'userspace/kernel/b.cc', '#include "bpf/stockade.skel.h"\n'),
    ('FileSize', 'userspace/base/long.cc', '\n' * 501),
    ('BpfNames', 'bpf/hooks/a.bpf.c', 'SEC("lsm/x")\nint BPF_PROG(sixteen_letters_, int a)\n{}\n'),
    ('BpfNames', 'bpf/hooks/a.bpf.c', 'SEC("tp_btf/x")\nint sixteen_letters_(void *c)\n{}\n'),
    ('BpfNames', 'bpf/lib/a.h', 'struct { int a; } sixteen_letters_ SEC(".maps");\n'),
]


class Arch(unittest.TestCase):
    def make_tree(self, files):
        top = tempfile.TemporaryDirectory(prefix='arch-test.')
        self.addCleanup(top.cleanup)
        root = os.path.join(top.name, 'checkout')
        for name, content in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
            with open(os.path.join(root, name), 'w', encoding='utf-8') as out:
                out.write(content)
        return root

    def problems(self, root):
        tree = arch.Tree(root)
        return {name: found for name, check in arch.CHECKS.items() if (found := list(check(tree)))}

    def test_a_clean_tree_passes(self):
        self.assertEqual(self.problems(self.make_tree(CLEAN)), {})

    def test_each_fault_is_found_by_its_check(self):
        for check, name, content in FAULTS:
            with self.subTest(check=check, name=name, content=content[:60]):
                found = self.problems(self.make_tree({**CLEAN, name: content}))
                self.assertIn(check, found)
                self.assertTrue(any(name in problem or check in ('Cycles', 'OneSkeleton') for problem in found[check]), found)

    def test_a_path_of_the_machine_is_found(self):
        root = self.make_tree(CLEAN)
        for path in (root, os.path.join(root, 'build')):
            with open(os.path.join(root, 'README.md'), 'w', encoding='utf-8') as out:
                out.write(f'see {path}\n')
            self.assertIn('MachinePaths', self.problems(root))
        with open(os.path.join(root, 'README.md'), 'w', encoding='utf-8') as out:
            out.write(f'see {root}-other and a{root}\n')
        self.assertNotIn('MachinePaths', self.problems(root))

    def test_the_command_fails_on_a_bad_tree_and_on_an_empty_one(self):
        def run(root):
            return subprocess.run(['/usr/bin/python3', os.path.join(HERE, 'arch.py'), root], stdout=subprocess.DEVNULL,
                                  env={'PATH': os.environ['PATH']}, check=False).returncode
        self.assertEqual(run(self.make_tree(CLEAN)), 0)
        self.assertEqual(run(self.make_tree({**CLEAN, FAULTS[2][1]: FAULTS[2][2]})), 1)
        self.assertEqual(run(self.make_tree({'README.md': ''})), 1)


if __name__ == '__main__':
    unittest.main()
