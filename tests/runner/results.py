"""Results of test cases: what they are, how they are read from gtest, and how a set of them is judged.

A case is (status, name, reason); status is passed, failed or skipped. Names are "<binary>/<Suite.Case>", in a guest
"vm/<kernel>/<lsm order>/<binary>/<Suite.Case>".
"""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

STATUSES = ('passed', 'failed', 'skipped')


@dataclass(frozen=True)
class Case:
    status: str
    name: str
    reason: str = ''


def from_gtest(binary, xml_text, output, exit_text):
    """Cases of one gtest run. xml_text is None when the binary died before it could write it; exit_text says how it ended, '' = well."""
    if xml_text is not None:
        try:
            cases = _from_xml(binary, xml_text)
        except ElementTree.ParseError as error:
            return [Case('failed', binary, f'unreadable result: {error}')]
        # A sanitizer's report at exit, or a failed environment, fails no case but the process.
        if exit_text and not any(case.status == 'failed' for case in cases):
            cases.append(Case('failed', f'{binary}/exit', exit_text))
        return cases or [Case('failed', binary, 'ran no test')]
    return _from_output(binary, output, exit_text or 'wrote no result')


def _from_xml(binary, xml_text):
    cases = []
    for case in ElementTree.fromstring(xml_text).iter('testcase'):
        name = f"{binary}/{case.get('classname')}.{case.get('name')}"
        failure, skipped = case.find('failure'), case.find('skipped')
        if failure is not None:
            cases.append(Case('failed', name, failure.get('message', '')))
        elif skipped is not None or case.get('result') in ('skipped', 'suppressed') or case.get('status') == 'notrun':
            # A disabled test is a skip too, else DISABLED_ would be a way around the list of skips.
            reason = skipped.get('message', '') if skipped is not None else 'disabled'
            cases.append(Case('skipped', name, _first_reason(reason)))
        else:
            cases.append(Case('passed', name))
    return cases


def _first_reason(message):
    # gtest puts "file:line" on the first line and what was streamed into GTEST_SKIP() on the next ones.
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    if len(lines) > 1 and re.search(r':\d+$', lines[0]):
        lines = lines[1:]
    return ' '.join(lines)


def _from_output(binary, output, exit_text):
    """The binary died: what its log says has passed has passed, what was running has failed."""
    cases, running = {}, None
    for line in output.splitlines():
        match = re.match(r'\[( RUN      |       OK |  FAILED  |  SKIPPED )\] (\S+\.[^\s,]+)', line)
        if not match:
            continue
        word, name = match.group(1).strip(), f'{binary}/{match.group(2)}'
        if word == 'RUN':
            running = name
        else:
            status = {'OK': 'passed', 'FAILED': 'failed', 'SKIPPED': 'skipped'}[word]
            cases[name] = Case(status, name, '' if status == 'passed' else 'see the log')
            running = None
    return [*cases.values(), Case('failed', running or binary, exit_text)]


def from_lines(name, text):
    """Cases that a script test wrote to STOCKADE_RESULTS: status TAB name TAB reason."""
    cases = []
    for line in text.splitlines():
        if not line.strip():
            continue
        status, _, rest = line.partition('\t')
        case, _, reason = rest.partition('\t')
        if status not in STATUSES or not case:
            cases.append(Case('failed', name, f'bad line in STOCKADE_RESULTS: {line!r}'))
        else:
            cases.append(Case(status, f'{name}/{case}', reason))
    return cases


def read_skip_list(path):
    """tests/skips.list: one name a line, two spaces, '# reason'. Returns the set of names."""
    names = set()
    with open(path, encoding='utf-8') as lines:
        for line in lines:
            name = line.split('  #')[0].strip()
            if name and not name.startswith('#'):
                names.add(name)
    return names


def check_skips(cases, listed, complete):
    """Failures for skips that are not listed, and for listed ones that did not skip.

    Only entries of binaries that ran are judged, unless complete: then an entry whose binary is not there at all fails as well.
    """
    skipped = {case.name for case in cases if case.status == 'skipped'}
    ran = {case.name for case in cases}
    groups = {name.rsplit('/', 1)[0] for name in ran}
    failures = []
    for name in sorted(skipped - listed):
        failures.append(Case('failed', f'skips.list: {name}', 'skipped, but not listed in tests/skips.list'))
    for name in sorted(listed - skipped):
        if complete or name in ran or name.rsplit('/', 1)[0] in groups:
            failures.append(Case('failed', f'skips.list: {name}', 'listed in tests/skips.list, but did not skip: remove the line'))
    return failures


def closing_line(cases):
    count = {status: sum(case.status == status for case in cases) for status in STATUSES}
    return f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped"


def succeeded(cases):
    """Zero tests are a failure: a run that tests nothing proves nothing."""
    return not any(case.status == 'failed' for case in cases) and any(case.status == 'passed' for case in cases)
