#!/usr/bin/python3
"""A consumer of Stockade's events, to begin your own from. It reads JSON lines and needs nothing but Python:

    for class in process file network dns findings lifecycle audit; do
        kcat -C -b BROKER -t stockade.$class -o beginning -u &
    done | consumer.py

What a consumer has to know is here: an event may come twice (an agent died after it was sent), the order is that of each topic alone,
events are numbered from 1 within each sandbox by `export_seq`, `lost` says which numbers will not come, and the `seal` is the last one.
Printed are findings, refusals and actions, and of each sandbox that was closed whether all its events came. That nothing was changed is not
looked at: `stockade verify` does that.
"""

import json
import sys


class Sandbox:
    """Which numbers came, or were told as lost."""

    def __init__(self):
        self.reached = 0      # all up to it
        self.beyond = set()
        self.lost = 0
        self.last = None      # of the seal

    def take(self, number):
        """False where it came before."""
        if number <= self.reached or number in self.beyond:
            return False
        self.beyond.add(number)
        while self.reached + 1 in self.beyond:
            self.reached += 1
            self.beyond.remove(self.reached)
        return True

    def complete(self):
        return self.last is not None and self.reached >= self.last


def told(event):
    """What of it a person should see; None = nothing."""
    if event.get('kind') == 'finding':
        finding = event['finding']
        return f'{finding.get("severity", "")} {finding.get("rule", "")}: {finding.get("title", "")}'
    if event.get('kind') == 'action':
        action = event['action']
        by = f' by uid {action["actor_uid"]}' if 'actor_uid' in action else f' for {action.get("rule", "")}'
        return f'{action.get("op", "")} {action.get("result", "")}{by}'
    if event.get('lock'):
        return f'{event.get("verdict", "")} ({event["lock"]}): {event.get("reason", "")}'
    return None


def consume(lines, say):
    sandboxes = {}
    for line in lines:
        if not line.strip():
            continue
        event = json.loads(line)
        # The node's own events have no sandbox and no end. 64-bit numbers are strings in JSON.
        name = (event.get('node', ''), event.get('sandbox', {}).get('id', ''))
        number = int(event.get('export_seq', 0))
        sandbox = sandboxes.setdefault(name, Sandbox())
        if not sandbox.take(number):
            continue
        for hole in event.get('lost', {}).get('exports', []):
            for missing in range(int(hole['first']), int(hole['last']) + 1):
                sandbox.lost += sandbox.take(missing)
        if event.get('kind') == 'seal':
            sandbox.last = number
        text = told(event)
        if text is not None:
            say(f'{event.get("time", "")} {name[1]} {text}')
    for (node, identity), sandbox in sorted(sandboxes.items()):
        if not identity:
            continue
        if sandbox.last is None:
            say(f'{node} {identity} open: {sandbox.reached} events')
        elif not sandbox.complete():
            say(f'{node} {identity} INCOMPLETE: {sandbox.last - sandbox.reached - len(sandbox.beyond)} missing after number {sandbox.reached}')
        else:
            say(f'{node} {identity} complete: {sandbox.last} numbers, {sandbox.lost} told as lost')


if __name__ == '__main__':
    consume(sys.stdin, print)
