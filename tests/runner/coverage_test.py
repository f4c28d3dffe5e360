#!/usr/bin/python3
"""Tests of coverage.py."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import coverage  # noqa: E402
from results import Case  # noqa: E402

DOCUMENT = '''
| operation | what | lsm | lsm+launcher | signal | signal+launcher |
|---|---|---|---|---|---|
| `open_read` | open | prevented | prevented | killed after effect [1] | prevented (`landlock`) |
| `open_read_x` | other | prevented | prevented | seen | seen |
'''
PREFIX = 'live_coverage_test/All/CoverageTest.IsWhatTheTableSays/'


class Table(unittest.TestCase):
    def test_cases_count_for_the_longest_operation_that_they_begin_with(self):
        cases = [Case('passed', PREFIX + 'open_read_old'), Case('failed', 'vm/6.1/nobpf/' + PREFIX + 'open_read_x')]
        lines = coverage.table(DOCUMENT, cases)
        self.assertRegex(lines[1], r'^open_read +prevented +killed after effect +prevented \(`landlock`\) +1 passed$')
        self.assertRegex(lines[2], r'^open_read_x +prevented +seen +seen +1 failed$')
        self.assertEqual(lines[3], 'run on: 6.1/nobpf, native')

    def test_nothing_is_said_where_no_case_ran(self):
        self.assertEqual(coverage.table(DOCUMENT, [Case('passed', 'base_x_test/S.A')]), [])


if __name__ == '__main__':
    unittest.main()
