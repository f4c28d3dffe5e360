"""A test script's cases: functions by name, each of which fails by an exception or by returning what is wrong."""

import os
import sys
import time
import traceback


def run(cases):
    """Runs {name: function}; one line each in STOCKADE_RESULTS (cmake/StockadeRoom.cmake). Arguments of the script choose by part of a name."""
    failed = ran = 0
    for name, function in cases.items():
        if sys.argv[1:] and not any(part in name for part in sys.argv[1:]):
            continue
        ran += 1
        start, problems = time.monotonic(), []
        try:
            problems = [str(problem) for problem in function() or []]
        except Exception:  # pylint: disable=broad-except  # a case that breaks has failed, and the next one is run
            problems = [traceback.format_exc()]
        failed += bool(problems)
        print(f"{'FAILED' if problems else 'ok    '} {name} ({time.monotonic() - start:.1f} s)", *problems, sep='\n    ', flush=True)
        record('failed' if problems else 'passed', name, problems)
    print(f'{ran} cases, {failed} failed')
    return 1 if failed or not ran else 0


def record(status, name, problems):
    path = os.environ.get('STOCKADE_RESULTS')
    if path:
        reason = ' '.join('; '.join(problems[:3]).split())
        with open(path, 'a', encoding='utf-8') as file:
            file.write(f'{status}\t{name}\t{reason}\n')
