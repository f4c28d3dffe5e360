#!/usr/bin/python3
"""Runs the tests of a build directory rung by rung and prints one report; ./dev test is the way to call it.

The list of tests is ctest's (labels: unit root live arch events kyverno kubernetes chart package microvm rules, and fuzz in a build of its own); guests are booted by vmtests/run. A gtest binary counts as many tests as it
has cases. The last line of the output is exactly "N passed, N failed, N skipped".
"""

import argparse
import fnmatch
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import coverage  # noqa: E402
import results  # noqa: E402

RUNGS = ('arch', 'unit', 'fuzz', 'events', 'kyverno', 'kubernetes', 'chart', 'package', 'microvm', 'rules', 'root', 'live', 'vm')


def list_tests(build_dir):
    """[(name, command, labels, environment, directory, timeout_s)] as ctest has them."""
    text = subprocess.run(['ctest', '--show-only=json-v1'], cwd=build_dir, check=True, stdout=subprocess.PIPE, text=True).stdout
    tests = []
    for test in json.loads(text)['tests']:
        props = {prop['name']: prop['value'] for prop in test.get('properties', [])}
        environment = dict(item.partition('=')[::2] for item in props.get('ENVIRONMENT', []) if '=' in item)
        tests.append((test['name'], test.get('command'), set(props.get('LABELS', [])), environment,
                      props.get('WORKING_DIRECTORY', build_dir), float(props.get('TIMEOUT', 300))))
    return tests


def run_command(command, environment, directory, timeout_s, log_path):
    """Runs one test in a session of its own; returns ('' or how it failed to end well, exit status)."""
    with open(log_path, 'wb') as log:
        process = subprocess.Popen(command, cwd=directory, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            # Its own process group only: nothing that this run did not start.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f'timed out after {timeout_s:.0f} s', -signal.SIGKILL
    if status < 0:
        return f'killed by {signal.Signals(-status).name}', status
    return (f'exit status {status}' if status else ''), status


def run_test(test, log_dir):
    name, command, labels, environment, directory, timeout_s = test
    if not command or not os.path.exists(command[0]):
        return [results.Case('failed', name, 'not built')]
    log_path = os.path.join(log_dir, name + '.log')
    with tempfile.TemporaryDirectory(prefix='stockade-test.') as scratch:
        result_path = os.path.join(scratch, 'result')
        environment = {**environment, 'STOCKADE_RESULTS': result_path}
        if 'gtest' in labels:
            command = command + [f'--gtest_output=xml:{result_path}', '--gtest_color=no']
        exit_text, status = run_command(command, environment, directory, timeout_s, log_path)
        result = None
        if os.path.exists(result_path):
            with open(result_path, encoding='utf-8', errors='replace') as file:
                result = file.read()
    with open(log_path, encoding='utf-8', errors='replace') as log:
        output = log.read()
    if 'gtest' in labels:
        return results.from_gtest(name, result, output, exit_text)
    cases = results.from_lines(name, result or '')
    if status == 77 and not cases:
        last = [line for line in output.splitlines() if line.strip()][-1:] or ['no reason given']
        return [results.Case('skipped', name, last[0])]
    if exit_text and not any(case.status == 'failed' for case in cases):
        cases.append(results.Case('failed', name, exit_text))
    return cases or [results.Case('passed', name)]


def report(name, cases, seconds, log_path):
    """One line for a binary in which all is well; each failed or skipped case with its reason."""
    failed = [case for case in cases if case.status == 'failed']
    print(f"{'FAILED' if failed else 'ok':6}  {name}  ({results.closing_line(cases)}; {seconds:.1f} s)", flush=True)
    for case in cases:
        if case.status != 'passed':
            print(f'    {case.status}: {case.name}: {case.reason.strip()}', flush=True)
    if failed and log_path and os.path.exists(log_path):
        with open(log_path, encoding='utf-8', errors='replace') as log:
            for line in log.read().splitlines()[-60:]:
                print('    | ' + line, flush=True)


def run_rung(rung, tests, patterns, log_dir):
    cases = []
    for test in tests:
        name = test[0]
        if rung not in test[2] or (patterns and not any(fnmatch.fnmatch(name, p) or p in name for p in patterns)):
            continue
        start = time.monotonic()
        found = run_test(test, log_dir)
        report(name, found, time.monotonic() - start, os.path.join(log_dir, name + '.log'))
        cases += found
    return cases


def run_guests(args, log_dir):
    """The vm rung: vmtests/run reports as it goes and leaves its cases in a file."""
    path = os.path.join(log_dir, 'vm.results')
    if os.path.exists(path):
        os.unlink(path)
    command = [os.path.join(args.source_dir, 'vmtests', 'run'), '--build-dir', args.build_dir, '--results', path,
               '--kernels', args.kernels] + args.patterns
    status = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    text = ''
    if os.path.exists(path):
        with open(path, encoding='utf-8') as file:
            text = file.read()
    cases = results.from_lines('vm', text)
    if status and not any(case.status == 'failed' for case in cases):
        cases.append(results.Case('failed', 'vm', f'vmtests/run: exit status {status}'))
    return cases


def run_fuzzers(args, log_dir):
    """The fuzz rung: fuzzers need clang, and so a build directory beside the one that is tested."""
    build_dir = os.path.join(args.source_dir, 'build', 'fuzz')
    try:
        tests = list_tests(build_dir)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        return [results.Case('failed', 'fuzz', f'no build in {build_dir}: {error}')]
    return run_rung('fuzz', tests, args.patterns, log_dir)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build-dir', required=True)
    parser.add_argument('--source-dir', required=True)
    parser.add_argument('--rungs', required=True, help='comma-separated, of ' + ' '.join(RUNGS))
    parser.add_argument('--kernels', default='all', help='for the vm rung: names of vmtests/kernels.list, comma-separated')
    parser.add_argument('--complete', action='store_true', help='all rungs and no pattern: every line of skips.list must be met')
    parser.add_argument('patterns', nargs='*', help='only tests whose name contains or matches one of these')
    return parser.parse_args()


def main():
    args = parse_args()
    log_dir = os.path.join(args.build_dir, 'test-logs')
    os.makedirs(log_dir, exist_ok=True)
    tests = list_tests(args.build_dir)
    cases = []
    for rung in args.rungs.split(','):
        print(f'== {rung}', flush=True)
        if rung == 'vm':
            cases += run_guests(args, log_dir)
        elif rung == 'fuzz':
            cases += run_fuzzers(args, log_dir)
        else:
            found = run_rung(rung, tests, args.patterns, log_dir)
            # A rung that is asked for and has no test would be green for ever.
            cases += found if found or args.patterns else [results.Case('failed', rung, 'no test of this rung in the build')]
    listed = results.read_skip_list(os.path.join(args.source_dir, 'tests', 'skips.list'))
    cases += results.check_skips(cases, listed, args.complete and not args.patterns)

    with open(os.path.join(args.source_dir, 'docs', 'coverage.md'), encoding='utf-8') as file:
        lines = coverage.table(file.read(), cases)
    if lines:
        print('== coverage', *lines, sep='\n', flush=True)
    # Skips and failures once more at the end, where a reader of a long log looks for them.
    print('== summary', flush=True)
    for status in ('skipped', 'failed'):
        for case in cases:
            if case.status == status:
                print(f'{status}: {case.name}: {" ".join(case.reason.split())}')
    if not cases:
        print('no test ran')
    print(results.closing_line(cases), flush=True)
    return 0 if results.succeeded(cases) else 1


if __name__ == '__main__':
    sys.exit(main())
