#!/usr/bin/python3
"""deploy/kafka/consumer.py on events that come twice, out of order between topics, with losses that are told and one that is not."""

import json
import os
import subprocess
import sys

CONSUMER = os.path.join(os.environ['STOCKADE_SOURCE_DIR'], 'deploy', 'kafka', 'consumer.py')
TIMEOUT_S = 60


def event(sandbox, number, kind, **more):
    # As the agent writes it: 64-bit numbers as strings.
    return {'id': f'{sandbox}.{number}', 'node': 'n1', 'kind': kind, 'sandbox': {'id': sandbox}, 'export_seq': str(number), **more}


def ask(events):
    text = ''.join(json.dumps(one) + '\n' for one in events)
    done = subprocess.run([sys.executable, CONSUMER], input=text, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True)
    return done.stdout


def expect(text, *parts):
    for part in parts:
        if part not in text:
            sys.exit(f'not said: {part}\n{text}')


def main():
    refusal = event('sbx_a', 2, 'file', verdict='deny', lock='bpf', reason='not in files.read')
    found = event('sbx_a', 3, 'finding', finding={'severity': 'high', 'rule': 'r1', 'title': 'a shell'})
    whole = [event('sbx_a', 5, 'seal'), event('sbx_a', 1, 'exec'), refusal, refusal, found,
             event('sbx_a', 4, 'action', action={'op': 'kill', 'result': 'done', 'actor_uid': 0})]
    text = ask(whole)
    expect(text, 'deny (bpf): not in files.read', 'high r1: a shell', 'kill done by uid 0', 'n1 sbx_a complete: 5 numbers, 0 told as lost')
    if text.count('not in files.read') != 1:
        sys.exit(f'a repeated event was told twice\n{text}')
    expect(ask(whole[:2] + whole[4:]), 'n1 sbx_a INCOMPLETE: 1 missing after number 1')
    expect(ask(whole[1:]), 'n1 sbx_a open: 4 events')
    lost = event('sbx_a', 4, 'lost', lost={'count': '2', 'stage': 'spool', 'exports': [{'first': '2', 'last': '3'}]})
    expect(ask([whole[0], whole[1], lost]), 'n1 sbx_a complete: 5 numbers, 2 told as lost')
    expect(ask([{'id': 'a', 'node': 'n1', 'kind': 'agent', 'agent': {'op': 'started'}, 'export_seq': '1'}] + whole), 'n1 sbx_a complete')


if __name__ == '__main__':
    main()
