#!/usr/bin/python3
"""Tests of results.py: a report that counts wrongly would hide everything else."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import results  # noqa: E402
from results import Case  # noqa: E402

XML = '''<?xml version="1.0" encoding="UTF-8"?>
<testsuites><testsuite name="S">
<testcase name="Good" status="run" result="completed" classname="S" />
<testcase name="Bad" status="run" result="completed" classname="S"><failure message="a.cc:3&#x0A;no" type=""></failure></testcase>
<testcase name="Skip" status="run" result="skipped" classname="S"><skipped message="a.cc:4&#x0A;no LSM here&#x0A;" /></testcase>
<testcase name="DISABLED_x" status="notrun" result="suppressed" classname="S" />
</testsuite></testsuites>'''


class FromGtest(unittest.TestCase):
    def test_each_case_counts(self):
        cases = results.from_gtest('b', XML, '', 'exit status 1')
        self.assertEqual(results.closing_line(cases), '1 passed, 1 failed, 2 skipped')
        self.assertIn(Case('skipped', 'b/S.Skip', 'no LSM here'), cases)
        self.assertIn(Case('skipped', 'b/S.DISABLED_x', 'disabled'), cases)

    def test_a_bad_exit_with_no_failed_case_is_a_failure(self):
        clean = XML.replace('<failure message="a.cc:3&#x0A;no" type=""></failure>', '')
        self.assertFalse(results.succeeded(results.from_gtest('b', clean, '', 'exit status 23')))
        self.assertTrue(results.succeeded(results.from_gtest('b', clean, '', '')))

    def test_a_death_fails_the_case_that_ran(self):
        output = '[ RUN      ] S.One\n[       OK ] S.One (0 ms)\n[ RUN      ] S.Two\n'
        cases = results.from_gtest('b', None, output, 'killed by SIGSEGV')
        self.assertEqual(cases, [Case('passed', 'b/S.One'), Case('failed', 'b/S.Two', 'killed by SIGSEGV')])

    def test_no_result_no_output_no_case_and_half_a_result_are_failures(self):
        for xml in (None, '<testsuites></testsuites>', '<testsuites><test'):
            self.assertFalse(results.succeeded(results.from_gtest('b', xml, '', '')), xml)


class FromLines(unittest.TestCase):
    def test_lines(self):
        self.assertEqual(results.from_lines('s', 'passed\ta\t\nskipped\tb\twhy\n'), [Case('passed', 's/a'), Case('skipped', 's/b', 'why')])

    def test_a_bad_line_is_a_failure(self):
        self.assertFalse(results.succeeded(results.from_lines('s', 'passed\ta\t\nfine\tb\n')))


class Skips(unittest.TestCase):
    def check(self, cases, listed, complete=False):
        return [case.name for case in results.check_skips(cases, listed, complete)]

    def test_equal_sets_pass(self):
        self.assertEqual(self.check([Case('skipped', 'b/S.A', 'x'), Case('passed', 'b/S.B')], {'b/S.A'}), [])

    def test_an_unlisted_skip_fails(self):
        self.assertEqual(self.check([Case('skipped', 'b/S.A', 'x')], set()), ['skips.list: b/S.A'])

    def test_a_listed_one_that_runs_or_is_gone_fails(self):
        self.assertEqual(self.check([Case('passed', 'b/S.A')], {'b/S.A'}), ['skips.list: b/S.A'])
        self.assertEqual(self.check([Case('passed', 'b/S.B')], {'b/S.A'}), ['skips.list: b/S.A'])

    def test_other_binaries_entries_count_only_in_a_complete_run(self):
        self.assertEqual(self.check([Case('passed', 'c/S.A')], {'b/S.A'}), [])
        self.assertEqual(self.check([Case('passed', 'c/S.A')], {'b/S.A'}, complete=True), ['skips.list: b/S.A'])

    def test_the_list_is_read_without_comments(self):
        with tempfile.NamedTemporaryFile('w', suffix='.list') as file:
            file.write('# all\n\nb/S.A/0  # TCG is slow\nvm/6.1/landlock+bpf/b/S.B\n')
            file.flush()
            self.assertEqual(results.read_skip_list(file.name), {'b/S.A/0', 'vm/6.1/landlock+bpf/b/S.B'})


class Closing(unittest.TestCase):
    def test_nothing_run_is_no_success(self):
        self.assertFalse(results.succeeded([]))
        self.assertFalse(results.succeeded([Case('skipped', 'a', 'x')]))


if __name__ == '__main__':
    unittest.main()
