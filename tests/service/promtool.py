"""Runs Debian's promtool, which is fetched once: promtool.py ARGUMENTS..."""

import os
import sys

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'kyverno'))
import tools  # noqa: E402


def path():
    tools.build('prometheus')
    return tools.path('promtool')


if __name__ == '__main__':
    os.execv(path(), ['promtool'] + sys.argv[1:])
