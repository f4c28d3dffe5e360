#!/usr/bin/python3
"""Tests of the guest protocol's reader and of the initramfs writer; no guest is booted."""

import importlib.machinery
import importlib.util
import os
import stat
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import pack  # noqa: E402

sys.dont_write_bytecode = True
_loader = importlib.machinery.SourceFileLoader('vmtests_run', os.path.join(HERE, 'run'))
_spec = importlib.util.spec_from_loader('vmtests_run', _loader)
run = importlib.util.module_from_spec(_spec)
sys.modules['vmtests_run'] = run
_loader.exec_module(run)


class Protocol(unittest.TestCase):
    def test_a_whole_run(self):
        ready, outcomes, running, done = run.parse_protocol('@ready 6.1 bpf\r\n@begin 0\r\n|<a>\r\n|</a>\r\n@end 0 1 7\r\n@done\r\n')
        self.assertEqual((ready, running, done), ('6.1 bpf', None, True))
        self.assertEqual(outcomes[0], run.Outcome(1, 7, '<a>\n</a>', ''))

    def test_a_guest_that_stops_midway_has_a_running_row(self):
        _, outcomes, running, done = run.parse_protocol('@ready x\n@begin 0\n@end 0 0 1\n@begin 1\n|<half')
        self.assertEqual((set(outcomes), running, done), ({0}, 1, False))

    def test_nothing_is_nothing(self):
        self.assertEqual(run.parse_protocol(''), (None, {}, None, False))

    def test_output_is_split_by_row(self):
        self.assertEqual(run.split_output('@output 0\r\na\r\n@output 1\r\nb\r\n'), {0: 'a\n', 1: 'b\n'})

    def test_a_test_cannot_pass_without_a_word_of_the_guest(self):
        row = run.Row('b', [], [], [])
        cases = run.cases_of(row, run.Outcome(-1, 0, '', ''), 'the guest hung')
        self.assertEqual([(case.status, case.reason) for case in cases], [('failed', 'the guest hung')])


class Lists(unittest.TestCase):
    def test_the_checked_in_lists_are_well_formed(self):
        self.assertTrue(run.read_rows())
        self.assertIn(('5.10', 'refuse'), run.read_kernels())


class Initramfs(unittest.TestCase):
    def test_cpio_reads_back_what_was_written(self):
        archive = pack.Archive()
        archive.add_bytes('/bin/tool', b'abc', 0o755)
        archive.add_link('/etc/x', '../y')
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, 'a.cpio')
            archive.write(path)
            subprocess.run(['/usr/bin/busybox', 'cpio', '-i', '-d', '-F', path], cwd=scratch, check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            # /bin is a link to /usr/bin, as on Debian.
            tool = os.path.join(scratch, 'usr/bin/tool')
            with open(tool, 'rb') as file:
                self.assertEqual(file.read(), b'abc')
            self.assertEqual(stat.S_IMODE(os.stat(tool).st_mode), 0o755)
            self.assertEqual(os.readlink(os.path.join(scratch, 'bin')), 'usr/bin')
            self.assertEqual(os.readlink(os.path.join(scratch, 'etc/x')), '../y')


if __name__ == '__main__':
    unittest.main()
