#!/usr/bin/python3
"""Shipped rules that only pods can fire: each by its trigger of pod_triggers.list in a real container (runc), where the agent is the runtime's
plugin, and none by a container that does honest work. Root.
"""

import os
import pathlib
import re
import sys
from functools import partial

SOURCE = pathlib.Path(os.environ['STOCKADE_SOURCE_DIR'])
sys.path.insert(0, str(SOURCE / 'tests/kubernetes'))

from agent import Agent  # noqa: E402
from node import Failed, until  # noqa: E402
import cases  # noqa: E402  of tests/kyverno, where node looks
from runc_node import RuncNode  # noqa: E402

SPEC = """\
  mode: observe
  exec: {allow: [/**]}
  files: {read: [/**], write: [/**]}
  network: {allow: []}
  entered: observe
  record: {exec: all, files: all, network: all}
"""
HONEST = 'echo x > /tmp/x; cat /tmp/x'
# As a container has them that may make nodes and packets.
CAPABILITIES = ['CAP_MKNOD', 'CAP_NET_RAW', 'CAP_FSETID']


def triggers():
    for line in (SOURCE / 'tests/rules/pod_triggers.list').read_text(encoding='utf-8').splitlines():
        if line and not line.startswith('#'):
            name, flags, script = re.fullmatch(r'(\w+) +(?:\{([^}]*)\} )?(.*)', line).groups()
            yield name, flags or '', script


def ids():
    """Name -> id of the shipped rules."""
    found = {}
    for path in SOURCE.glob('rules/detections/**/*.yaml'):
        for document in path.read_text(encoding='utf-8').split('\n---\n'):
            values = dict(re.findall(r'^(id|name): (\S+)$', document, re.MULTILINE))
            found[values['name']] = values['id']
    return found


class Triggers:
    def __init__(self, node, agent):
        self.node, self.agent, self.count = node, agent, 0

    def run(self, flags, script):
        """The rules that a container fires which runs the script, once its end is told."""
        self.count += 1
        name = 'none' if flags == 'policy=none' else 'open'
        pod = self.node.pod(f'p{self.count}', namespace='tools', labels={'stockade.dev/tool-class': 'standard'},
                            annotations={'stockade.dev/policy': name})
        enters = flags == 'exec'
        command = ['/bin/sh', '-c', 'while ! test -e /out/go; do sleep 0.05; done' if enters else script]
        box = self.node.container(pod, command, capabilities=CAPABILITIES)
        try:
            self.node.start(box)
            if enters:
                self.node.exec(box, '/bin/sh', '-c', script)
                pathlib.Path(box['out'], 'go').touch()
        except Failed:
            assert name == 'none', 'it did not start'
        self.node.exited(box)

        def of(event):
            return event.get('sandbox', {}).get('labels', {}).get('container.id') == box['id']

        # The rules see an event some time after it is exported: the closing summary counts what they found until the end.
        self.agent.event('its end', lambda event: of(event) and event.get('lifecycle', {}).get('op') == 'destroyed')
        return lambda: {event['finding']['rule'] for event in self.agent.events() if of(event) and 'finding' in event}


def main():
    known = ids()
    with RuncNode() as node, \
            Agent(f'kubernetes:\n  nri: {node.socket}\n  policies: [open]\n', rules=f'{{dirs: [{SOURCE}/rules/detections]}}') as agent:
        agent.policy('open', SPEC)
        agent.up()
        agent.connected()
        pods = Triggers(node, agent)

        def fired(name, flags, script):
            found = pods.run(flags, script)
            until(f'{name} is fired by: {script}', lambda: known[name] in found())

        def silent():
            found = pods.run('', HONEST)
            # Behind it, so that what it would have fired is there.
            behind = pods.run('', 'mknod /tmp/disk b 8 0')
            until('the rules are through', behind)
            assert not found(), found()

        failed = cases.run({**{name: partial(fired, name, flags, script) for name, flags, script in triggers()}, 'honest_work_is_silent': silent})
        if failed:
            print(agent.log()[-6000:], file=sys.stderr)
    return failed


if __name__ == '__main__':
    sys.exit(main())
