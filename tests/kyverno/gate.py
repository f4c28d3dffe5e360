#!/usr/bin/python3
"""Runs `kyverno test` and believes nothing but rows. gate.py FOLDER...

The CLI ends with 0 in cases in which it has shown nothing: a resource that the policy does not select counts as an expected refusal, a
name that no resource has vanishes, an empty folder passes. So every expectation of a kyverno-test.yaml, that is each (policy, kind,
resource) of its results, must have a row of its own in the CLI's JSON with the result Pass and the reason Ok; every resource of the test
must have an expectation for every policy; and what cannot be shown by the CLI at all is refused as an expectation.
"""

import json
import os
import subprocess
import sys
from collections import Counter, namedtuple

import yaml

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tools  # noqa: E402

TIMEOUT_S = 300
TEST_FILE = 'kyverno-test.yaml'

Expectation = namedtuple('Expectation', 'policy kind resource')  # resource: "namespace/name", or "name" of a cluster's
Row = namedtuple('Row', 'policy kind resource result reason')
FLAGS = ('isValidatingPolicy', 'isValidatingAdmissionPolicy', 'isDeletingPolicy', 'isMutatingPolicy', 'isGeneratingPolicy')
# Without these a result of the kind is a pass whatever the policy does.
NEEDED = {'isMutatingPolicy': 'patchedResources', 'isGeneratingPolicy': 'generatedResource'}


def documents(path):
    with open(path, encoding='utf-8') as file:
        return [document for document in yaml.safe_load_all(file) if document]


def name_of(resource):
    metadata = resource['metadata']
    return f"{metadata['namespace']}/{metadata['name']}" if 'namespace' in metadata else metadata['name']


def parse_rows(output):
    """Rows of all JSON arrays in the output, which has log lines between them."""
    rows, decoder, at = [], json.JSONDecoder(), 0
    while (at := output.find('[', at)) >= 0:
        try:
            found, end = decoder.raw_decode(output, at)
        except ValueError:
            at += 1
            continue
        if found and all(isinstance(item, dict) and {'POLICY', 'RESOURCE', 'RESULT', 'REASON'} <= item.keys() for item in found):
            rows += [to_row(item) for item in found]
        at = end
    return rows


def to_row(item):
    # RESOURCE is <group and version>/<kind>/<namespace, or nothing>/<name>, but of a generated one the name alone.
    kind, namespace, name = ([''] * 3 + item['RESOURCE'].split('/'))[-3:]
    return Row(item['POLICY'].split('/')[-1], kind, f'{namespace}/{name}' if namespace else name, item['RESULT'], item['REASON'])


def run_cli(folder):
    """(rows, exit status, whole output)"""
    done = subprocess.run([tools.path('kyverno'), 'test', folder, '--require-tests', '--remove-color', '-o', 'json'],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S,
                          check=False)
    return parse_rows(done.stdout), done.returncode, done.stdout


def expand(test):
    """Expectations of a test, and what is wrong with them before anything is run."""
    expectations, problems = [], []
    for number, result in enumerate(test.get('results') or [], 1):
        where = f'result {number}'
        flags = [flag for flag in FLAGS if result.get(flag)]
        if len(flags) != 1:
            problems.append(f'{where}: exactly one of {", ".join(FLAGS)} is needed')
        problems += [f'{where}: {NEEDED[flag]} is missing, so it passes whatever the policy does'
                     for flag in flags if flag in NEEDED and NEEDED[flag] not in result]
        if result.get('operation') == 'UPDATE':
            problems.append(f'{where}: the CLI makes oldObject of object for an UPDATE, so no change is shown: use the API server')
        if not result.get('resources'):
            problems.append(f'{where}: names no resources, so it is checked against all of them')
        if not result.get('kind'):
            problems.append(f'{where}: kind is missing')
        expectations += [Expectation(result.get('policy'), result.get('kind'), name) for name in result.get('resources') or []]
    if not expectations:
        problems.append('no expectation')
    return expectations, problems


def check_inventory(folder, test, expectations):
    """Every name is that of one resource, and every resource is expected of every policy."""
    resources = [resource for name in test.get('resources') or [] for resource in documents(os.path.join(folder, name))]
    present = Counter((resource['kind'], name_of(resource)) for resource in resources)
    names = Counter(name for _, name in present.elements())
    for expectation, times in Counter(expectations).items():
        if times > 1:
            yield f'{expectation}: is expected {times} times'
        if not present[expectation.kind, expectation.resource]:
            yield f'{expectation}: no such resource'
    # The CLI goes by the name alone.
    yield from (f'{name}: {times} resources have this name' for name, times in names.items() if times > 1)
    for policy in {expectation.policy for expectation in expectations}:
        for kind, name in present:
            if Expectation(policy, kind, name) not in expectations:
                yield f'{kind} {name}: nothing is expected of {policy}'


def generated_rows(folder, test, problems):
    """{Expectation: as what it is found in the rows}, of GeneratingPolicies: the CLI names the generated resource, and not even its namespace."""
    found = {}
    for result in test.get('results') or []:
        if result.get('isGeneratingPolicy') and 'generatedResource' in result:
            made = documents(os.path.join(folder, result['generatedResource']))
            row = Expectation(result['policy'], '', made[0]['metadata']['name'])
            if len(made) != 1 or len(result['resources']) != 1 or row in found.values():
                problems.append(f'{row}: its rows could not be told apart: one generated resource of a name for each test')
            found[Expectation(result['policy'], result['kind'], result['resources'][0])] = row
    return found


def check_rows(expectations, rows, generated=None):
    found = {}
    for row in rows:
        found.setdefault(Expectation(row.policy, row.kind, row.resource), []).append(row)
    for expectation in expectations:
        own = found.get((generated or {}).get(expectation, expectation), [])
        if not own:
            yield f'{expectation}: has no row'
        yield from (f'{expectation}: {row.result}, {row.reason}' for row in own if (row.result, row.reason) != ('Pass', 'Ok'))


def check(folder):
    """What is wrong with the test of a folder; nothing when all of it is shown. One folder, one test."""
    path = os.path.join(folder, TEST_FILE)
    if not os.path.exists(path):
        return [f'{path}: no test']
    tests = documents(path)
    if len(tests) != 1:
        return [f'{path}: {len(tests)} documents, not one']
    test = tests[0]
    expectations, problems = expand(test)
    names = (test.get('policies') or []) + (test.get('resources') or []) + [test[key] for key in ('variables', 'userinfo') if key in test]
    names += [result['generatedResource'] for result in test.get('results') or [] if 'generatedResource' in result]
    problems += [f'{name}: no such file' for name in names if not os.path.exists(os.path.join(folder, name))]
    if problems:
        return problems
    bound = [name for name in test.get('policies') or [] for document in documents(os.path.join(folder, name))
             if document.get('kind') == 'ValidatingAdmissionPolicyBinding']
    if bound:
        return [f'{name}: with a binding the CLI does not ask what the policy selects' for name in bound]
    problems = list(check_inventory(folder, test, expectations))
    generated = generated_rows(folder, test, problems)
    rows, status, output = run_cli(folder)
    problems += check_rows(expectations, rows, generated)
    if status and not problems:
        problems.append(f'the CLI ends with {status}')
    return problems + [f'    {line}' for line in output.splitlines()[-15:] if not rows]


def main():
    failed = 0
    for folder in sys.argv[1:]:
        problems = check(folder)
        failed += bool(problems)
        print(f"{'FAILED' if problems else 'ok'}  {folder}", *problems, sep='\n    ')
    return 1 if failed or len(sys.argv) < 2 else 0


if __name__ == '__main__':
    sys.exit(main())
