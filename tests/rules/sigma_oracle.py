#!/usr/bin/env python3
"""Our engine against pySigma: random rules, by its SQLite backend over the same events; files that both must take, or
both refuse, but for the differences that sigma_cases.py lists; and the shipped rules, which pySigma must take.

pysigma --run sigma_oracle.py [ROUNDS]      STOCKADE_BIN_DIR and STOCKADE_SOURCE_DIR say what is asked
"""

import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from sigma.backends.sqlite import sqliteBackend
from sigma.collection import SigmaCollection
from sigma.exceptions import SigmaError

from sigma_cases import LAXER, STRICTER, cases

RULES, EVENTS = 15, 40
TEXTS = ['Image', 'CommandLine', 'ParentImage', 'CurrentDirectory']
HEAD = 'title: %s\nid: 00000000-0000-4000-8000-%012d\nlogsource: {product: linux, category: process_creation}\ndetection:\n'


def text(rng, letters, most=5, least=0):
    return ''.join(rng.choice(letters) for _ in range(rng.randint(least, most)))


def quote(value):
    return "'%s'" % value.replace("'", "''")


def item(rng):
    kind = rng.random()
    if kind < 0.12:
        return '%s%s: %d' % ('ProcessId', rng.choice(['', '|lt', '|lte', '|gt', '|gte']), rng.randint(1, 4))
    field = rng.choice(TEXTS)
    if kind < 0.2:
        return '%s|re%s: %s' % (field, rng.choice(['', '|i']), quote(rng.choice(['^a', 'b$', 'a.b', '(a|b)+-', 'A[ab]', 'a{2}'])))
    if kind < 0.26:
        return '%s|base64offset|contains: %s' % (field, quote(text(rng, 'abc', 6, 4)))
    if kind < 0.3:
        return '%s|windash|contains: %s' % (field, quote(rng.choice(['-a', ' -ab', 'x-a'])))
    if kind < 0.34:
        return '%s|fieldref: %s' % (field, rng.choice([t for t in TEXTS if t != field]))
    mods = rng.choice(['', '|contains', '|startswith', '|endswith'])
    values = [quote(text(rng, 'abA/*?\\- ', 4, 1)) for _ in range(rng.randint(1, 3))]
    if len(values) > 1 and rng.random() < 0.3:
        mods += '|all'
    if rng.random() < 0.1:
        mods += '|neq'
    return '%s%s: [%s]' % (field, mods, ', '.join(values))


def condition(rng, names, depth=2):
    kind = rng.randint(0, 5) if depth else 0
    if kind == 1:
        return 'not (%s)' % condition(rng, names, depth - 1)
    if kind in (2, 3):
        # Without parentheses: precedence is part of what is compared.
        return '%s %s %s' % (condition(rng, names, depth - 1), rng.choice(['and', 'or']), condition(rng, names, depth - 1))
    if kind == 4:
        return '%s of %s' % (rng.choice(['1', 'any', 'all']), rng.choice(['them', 'sel_*']))
    return rng.choice(names)


def rule(rng, number):
    names = ['sel_%d' % i for i in range(rng.randint(1, 3))]
    body = ''
    for name in names:
        items = {i.split(':')[0]: i for i in (item(rng) for _ in range(rng.randint(1, 3)))}
        body += '  %s:\n' % name + ''.join('    %s\n' % i for i in items.values())
    wanted = condition(rng, names)
    for name in names:
        if name not in wanted and ' of ' not in wanted:
            wanted = '(%s) or %s' % (wanted, name)
    return HEAD % ('R%d' % number, number) + body + '  condition: %s\n' % wanted


def event(rng, number):
    row = {field: text(rng, 'abAB/- ', 8, 1) for field in TEXTS}
    if rng.random() < 0.2:
        row['CommandLine'] = rng.choice(['YWJj', 'IGFiY2Q=', 'ICBhYmNhYmM=', 'YmFjYWJjYQ==']) + row['CommandLine']
    if rng.random() < 0.1:
        row['ParentImage'] = row['Image'].upper()
    row['ProcessId'] = rng.randint(1, 4)
    native = {'id': 'e%d' % number, 'kind': 'exec',
              'process': {'pid': row['ProcessId'], 'cwd': row['CurrentDirectory'], 'ancestry': [{'exe': row['ParentImage']}]},
              'exec': {'path': row['Image'], 'role': 'program', 'argv': [row['CommandLine']]}}
    return row, native


def ours(stockade, rules, natives, folder):
    """Rule number -> numbers of the events it matches; or a list of rules that it refuses, and why."""
    good, refused = [], {}
    for number, yaml in rules.items():
        path = folder / ('%d.yaml' % number)
        path.write_text(yaml)
        done = subprocess.run([stockade, 'rules', 'check', str(path)], capture_output=True, text=True, check=False)
        if done.returncode:
            refused[number] = done.stdout
        else:
            good.append(str(path))
    events = folder / 'events.jsonl'
    events.write_text(''.join(json.dumps(native) + '\n' for native in natives))
    done = subprocess.run([stockade, 'rules', 'replay', str(events), '-o', 'json', '--rules', *good], capture_output=True, text=True, check=False)
    found = {number: set() for number in rules if number not in refused}
    out = json.loads(done.stdout)
    assert out['bad_lines'] == 0 and len(out['shown']) == out['findings'], done.stderr
    for shown in out['shown']:
        number = int(shown['finding']['rule'].split('-')[-1])
        found[number].add(int(shown['finding']['evidence'][0][1:]))
    return found, refused


def theirs(yaml, rows):
    query = sqliteBackend().convert(SigmaCollection.from_yaml(yaml))[0]
    base = sqlite3.connect(':memory:')
    base.create_function('REGEXP', 2, lambda pattern, value: value is not None and re.search(pattern, str(value)) is not None)
    # Plain equality is case-sensitive in that backend, and not in Sigma.
    base.execute('CREATE TABLE logs (n INTEGER, ProcessId INTEGER, %s)' % ', '.join('%s TEXT COLLATE NOCASE' % t for t in TEXTS))
    for n, row in enumerate(rows):
        base.execute('INSERT INTO logs VALUES (?, ?, %s)' % ', '.join('?' * len(TEXTS)), [n, row['ProcessId']] + [row[t] for t in TEXTS])
    query = query.replace('<TABLE_NAME>', 'logs').replace('SELECT *', 'SELECT n')
    return {n for (n,) in base.execute(query)}


def compare(stockade, rounds):
    rng = random.Random(20260105)
    answers = hits = impossible = differ = refused_there = 0
    for _ in range(rounds):
        rules = {number: rule(rng, number) for number in range(RULES)}
        rows, natives = zip(*(event(rng, number) for number in range(EVENTS)))
        with tempfile.TemporaryDirectory() as name:
            found, refused = ours(stockade, rules, natives, Path(name))
        for number, yaml in rules.items():
            try:
                wanted = theirs(yaml, rows)
            except SigmaError as error:
                refused_there += 1
                if number in found:
                    print('pySigma refuses, we do not: %s\n%s' % (error, yaml))
                continue
            if number in refused:
                # What we call impossible must find nothing there, and what always holds everything.
                impossible += 1
                right = ('can never hold' in refused[number] and not wanted) or ('holds for every' in refused[number] and len(wanted) == EVENTS)
                if not right:
                    differ += 1
                    print('refused: %s\n%s' % (refused[number], yaml))
                continue
            answers += EVENTS
            hits += len(wanted)
            if wanted != found[number]:
                differ += 1
                n = sorted(wanted ^ found[number])[0]
                print('differ on %s (pySigma: %s)\n%s' % (rows[n], n in wanted, yaml))
    print('%d answers compared, %d of them yes; %d rules impossible by both; %d refused by pySigma; %d differ'
          % (answers, hits, impossible, refused_there, differ))
    return differ == 0 and hits > answers / 50


def refusal(yaml):
    """Why pySigma does not take a file; empty where it does."""
    try:
        for rule_of in SigmaCollection.from_yaml(yaml).rules:
            if rule_of.errors:
                return str(rule_of.errors[0])
            if hasattr(rule_of, 'detection'):
                for each in rule_of.detection.parsed_condition:
                    each.parsed  # pylint: disable=pointless-statement
    except Exception as error:  # pylint: disable=broad-except  # some refusals are its own stumbling
        return '%s: %s' % (type(error).__name__, error)
    return ''


def parse(stockade):
    differ, met, both = 0, set(), [0, 0]
    with tempfile.TemporaryDirectory() as folder:
        for name, yaml in cases().items():
            path = Path(folder) / 'case.yaml'
            path.write_text(yaml)
            done = subprocess.run([stockade, 'rules', 'check', str(path)], capture_output=True, text=True, check=False)
            assert done.returncode in (0, 1), done.stderr
            ours_says = next((line.split('error: ', 1)[1] for line in done.stdout.splitlines() if ' error: ' in line), '')
            assert bool(ours_says) == (done.returncode == 1), done.stdout
            theirs_says = refusal(yaml)
            if bool(ours_says) == bool(theirs_says):
                both[bool(ours_says)] += 1
                continue
            listed = name if name in LAXER and theirs_says else next((s for s in STRICTER if ours_says and re.search(s, ours_says)), None)
            met.add(listed)
            if listed is None:
                differ += 1
                print('%s: we say %r, pySigma %r' % (name, ours_says, theirs_says))
    for unmet in (set(LAXER) | set(STRICTER)) - met:
        differ += 1
        print('no case differs in that way any more: %s' % unmet)
    print('%d files: %d taken by both, %d refused by both, %d differences as listed; %d others'
          % (len(cases()), both[0], both[1], len(cases()) - sum(both) - differ, differ))
    return differ == 0


def pack(source):
    files = sorted(Path(source, 'rules', 'detections').rglob('*.yaml'))
    refused = {path: why for path in files if (why := refusal(path.read_text()))}
    for path, why in refused.items():
        print('%s: %s' % (path, why))
    print('%d files of shipped rules, %d not taken by pySigma' % (len(files), len(refused)))
    return bool(files) and not refused


def main():
    stockade = os.path.join(os.environ['STOCKADE_BIN_DIR'], 'stockade')
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    results = {'matching': compare(stockade, rounds), 'parsing': parse(stockade), 'shipped': pack(os.environ['STOCKADE_SOURCE_DIR'])}
    if 'STOCKADE_RESULTS' in os.environ:
        with open(os.environ['STOCKADE_RESULTS'], 'a', encoding='utf-8') as file:
            for name, well in results.items():
                file.write('%s\t%s\t%s\n' % ('passed' if well else 'failed', name, '' if well else 'differs from pySigma'))
    sys.exit(0 if all(results.values()) else 1)


if __name__ == '__main__':
    main()
