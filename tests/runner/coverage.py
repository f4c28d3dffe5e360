"""The coverage table, beside what the cases of live_coverage_test said of it in this run."""

import re

CASE = re.compile(r'^(?:vm/)?(?:(?P<guest>[^/]+/[^/]+)/)?live_coverage_test/All/CoverageTest\.IsWhatTheTableSays/(?P<name>\w+)$')
ROW = re.compile(r'^\| `(?P<operation>\w+)` \| [^|]* \| (?P<lsm>[^|]*) \| [^|]* \| (?P<signal>[^|]*) \| (?P<launcher>[^|]*) \|$')


def rows(document):
    """(operation, cells under lsm, signal and signal+launcher) of docs/coverage.md, without the numbers of reasons."""
    found = [ROW.match(line) for line in document.splitlines()]
    return [(m['operation'], *(re.sub(r' \[\d+\]', '', m[k]).strip() for k in ('lsm', 'signal', 'launcher'))) for m in found if m]


def operation_of(name, operations):
    """A case is named after its operation, or begins with it."""
    fitting = [operation for operation in operations if name == operation or name.startswith(operation + '_')]
    return max(fitting, key=len, default=None)


def table(document, cases):
    """Lines to print; none when no case of the table ran."""
    operations = rows(document)
    said = {}
    for case in cases:
        match = CASE.match(case.name)
        operation = match and operation_of(match['name'], [row[0] for row in operations])
        if operation:
            where = match['guest'] or 'native'
            said.setdefault(operation, {}).setdefault(case.status, []).append(where)
    if not said:
        return []
    lines = [f'{"operation":22} {"lsm":20} {"signal":20} {"signal+launcher":20} asserted by']
    for operation, lsm, signal, launcher in operations:
        counts = [f'{len(places)} {status}' for status, places in sorted(said.get(operation, {}).items(), key=lambda item: item[0])]
        lines.append(f'{operation:22} {lsm:20} {signal:20} {launcher:20} {", ".join(counts) or "other tests"}')
    places = sorted({place for by_status in said.values() for group in by_status.values() for place in group})
    lines.append('run on: ' + ', '.join(places))
    return lines
