#!/usr/bin/python3
"""Pods under a container runtime with the agent as its plugin: who is killed, who is refused, who is left alone, and what stands when the
agent or the runtime is killed. Each effect that is stopped has a control in which it happens. Root.

pods_test.py containerd [CASE...]   the real one
pods_test.py runc [CASE...]         real containers, and a script in containerd's place: the same cases, and those of a runtime that errs
"""

import os
import signal
import sys

import nri_wire as wire
from agent import Agent
from node import Failed, Node, until  # and the path of what follows
from runc_node import RuncNode
import cases  # of tests/kyverno

TRACE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
IDENTITY = {'stockade.dev/session': 'sess-1', 'stockade.dev/tool': 'exec_skill', 'stockade.dev/trace': TRACE,
            'stockade.dev/tool-class': 'standard', 'team': 'blue'}
# What the pods run; bash is what they must not.
SPEC = """\
  extends: []
  mode: {mode}
  exec: {{allow: [/bin/busybox], violation: kill-sandbox}}
  files: {{read: [/**], write: [/out/**, /dev/null]}}
  network: {{allow: []}}
  entered: {entered}
"""
BASH = ['/bin/bash', '-c', 'echo ran > /out/ran']
# Runs bash when it is told to, and says whether it comes after that.
ON_ORDER = ['/bin/sh', '-c', 'echo up > /out/up; while ! test -e /out/go; do sleep 0.05; done; /bin/bash -c "echo ran > /out/ran"; echo after > /out/after; sleep 1000']


def policy(annotation):
    return {'stockade.dev/policy': annotation}


def has(container, name):
    return os.path.exists(os.path.join(container['out'], name))


def order(container):
    with open(os.path.join(container['out'], 'go'), 'w', encoding='utf-8'):
        pass


def sandbox_of(event):
    return event.get('sandbox', {})


def of(container):
    """Events of this container."""
    return lambda event: sandbox_of(event).get('labels', {}).get('container.id') == container['id']


def killed_for_bash(container):
    return lambda event: of(container)(event) and event.get('kind') == 'exec' and event.get('verdict') == 'kill-sandbox' and \
        event['exec']['path'] == '/bin/bash'


def lifecycle(container, op):
    return lambda event: of(container)(event) and event.get('lifecycle', {}).get('op') == op


class Pods:
    """The cases, in this order: one node, one agent, and each case pods of its own."""

    def __init__(self, node, agent):
        self.node = node
        self.agent = agent
        self.count = 0

    def pod(self, annotations=None, labels=IDENTITY, namespace='tools', **more):
        self.count += 1
        return self.node.pod(f'p{self.count}', namespace=namespace, labels=labels, annotations=annotations, **more)

    def started(self, command, **more):
        container = self.node.container(self.pod(**more), command)
        self.node.start(container)
        return container

    def test_bash_is_killed_before_its_first_instruction_and_the_event_says_whose_it_was(self):
        container = self.started(BASH, annotations=policy('strict'))
        code = self.node.exited(container)
        assert code != 0 and not has(container, 'ran'), f'exit {code}, ran: {has(container, "ran")}'
        event = self.agent.event('the event of the kill', killed_for_bash(container))
        sandbox, labels = event['sandbox'], event['sandbox']['labels']
        assert (labels['k8s.namespace.name'], labels['k8s.pod.name'], labels['k8s.container.name']) == \
            ('tools', container['pod']['name'], 'tool'), labels
        assert labels['k8s.pod.uid'] == container['pod']['uid'], labels
        assert (sandbox['session'], sandbox['tool'], sandbox['trace']) == ('sess-1', 'exec_skill', TRACE), sandbox
        assert labels['team'] == 'blue' and sandbox['runtime'] == 'pod', sandbox
        assert event['policy']['name'] == 'strict' and event['outcome'] == 'prevented', event
        self.agent.event('its end', lifecycle(container, 'destroyed'))

    def test_the_same_bash_runs_where_it_is_only_observed(self):
        container = self.started(BASH, annotations=policy('watch'))
        assert self.node.exited(container) == 0 and has(container, 'ran')
        event = self.agent.event('its event', killed_for_bash(container))
        assert event['dry_run'], event

    def test_what_the_policy_allows_runs_and_its_end_is_told_with_its_status(self):
        container = self.started(['/bin/sh', '-c', 'echo ran > /out/ran; exit 7'], annotations=policy('strict'))
        assert self.node.exited(container) == 7 and has(container, 'ran')
        for step in ('registered', 'policy-bound', 'attested', 'started', 'destroyed'):
            event = self.agent.event(step, lifecycle(container, step))
        until('it is in no list any more', lambda: event['sandbox']['id'] not in [row['id'] for row in self.agent.ps()])

    def test_a_bash_of_a_running_container_ends_all_of_it(self):
        container = self.started(ON_ORDER, annotations=policy('strict'))
        until('it is up', lambda: has(container, 'up'))
        order(container)
        assert self.node.exited(container) == 137
        assert not has(container, 'ran') and not has(container, 'after')
        self.agent.event('the event of the kill', killed_for_bash(container))

    def test_without_a_policy_the_command_is_refused(self):
        container = self.node.container(self.pod(), ['/bin/sh', '-c', 'echo ran > /out/ran'])
        try:
            self.node.start(container)  # the runtime may see its first task refused, or not
        except Failed:
            pass
        assert self.node.exited(container) != 0 and not has(container, 'ran')
        event = self.agent.event('it says why', lifecycle(container, 'degraded'))
        assert 'names no policy' in event['lifecycle']['detail'], event
        refusal = self.agent.event('the refusal', lambda event: of(container)(event) and event.get('kind') == 'exec' and
                                   event.get('verdict', 'allow') != 'allow')
        assert refusal['policy']['name'] == 'deny-all', refusal

    def test_a_policy_that_is_not_listed_is_none(self):
        container = self.node.container(self.pod(annotations=policy('open')), ['/bin/sh', '-c', 'echo ran > /out/ran'])
        try:
            self.node.start(container)
        except Failed:
            pass
        assert self.node.exited(container) != 0 and not has(container, 'ran')
        event = self.agent.event('it says why', lifecycle(container, 'degraded'))
        assert 'does not list' in event['lifecycle']['detail'], event

    def test_the_default_of_a_namespace_guards_pods_that_say_nothing(self):
        container = self.started(BASH, labels={}, namespace='guarded')
        assert self.node.exited(container) != 0 and not has(container, 'ran')
        self.agent.event('the event of the kill', killed_for_bash(container))

    def test_pods_that_are_no_sandboxes_are_left_alone(self):
        container = self.started(BASH, labels={'app': 'web'}, namespace='kube-system')
        assert self.node.exited(container) == 0 and has(container, 'ran')
        assert not any(of(container)(event) for event in self.agent.events())

    def test_labels_that_cannot_be_are_refused_with_a_reason(self):
        try:
            self.node.container(self.pod(labels={**IDENTITY, 'stockade.dev/trace': 'zero'}, annotations=policy('strict')), BASH)
        except Failed as error:
            assert 'traceparent' in str(error), error
        else:
            raise AssertionError('it was created')

    def test_one_that_cannot_be_bound_is_not_started(self):
        # The kernel's programs know 24 levels of the cgroup tree.
        deep = '/'.join([self.node.cgroup] + ['d'] * 30)
        container = self.node.container(self.pod(annotations=policy('strict'), parent=deep), ['/bin/sh', '-c', 'echo ran > /out/ran'])
        try:
            self.node.start(container)
        except Failed as error:
            assert 'deeper than' in str(error), error
        else:
            raise AssertionError('it was started')
        assert self.node.exited(container) != 0 and not has(container, 'ran')

    def test_whoever_comes_in_by_exec_is_refused_and_reported(self):
        container = self.started(ON_ORDER, annotations=policy('strict'))
        until('it is up', lambda: has(container, 'up'))
        try:
            said = self.node.exec(container, '/bin/echo', 'inside')
            assert 'inside' not in said, said
        except Failed:
            pass
        self.agent.event('the session', lambda event: of(container)(event) and event.get('entered') and
                         event.get('verdict', 'allow') != 'allow')
        container = self.started(ON_ORDER, annotations=policy('visited'))
        until('it is up', lambda: has(container, 'up'))
        assert self.node.exec(container, '/bin/echo', 'inside') == 'inside'
        try:
            said = self.node.exec(container, '/bin/bash', '-c', 'echo inside')
            assert 'inside' not in said, said
        except Failed:
            pass
        self.agent.event('the policy holds for it as well', killed_for_bash(container))

    def test_many_at_once_are_all_bound(self):
        pod = self.pod(annotations=policy('strict'))
        containers = [self.node.container(pod, ON_ORDER, name=f'c{i}') for i in range(8)]
        for container in containers:
            self.node.start(container)
        for container in containers:
            until('it is up', lambda c=container: has(c, 'up'))
        order(containers[3])
        assert self.node.exited(containers[3]) == 137
        for container in containers:
            if container is not containers[3]:
                assert self.node.state(container)['state'] == 'CONTAINER_RUNNING', 'a kill is of one container'
        assert len([row for row in self.agent.ps() if row['runtime'] == 'pod']) >= 7

    def test_verdicts_stand_while_the_agent_is_dead_and_the_next_one_takes_over(self):
        first, second = (self.started(ON_ORDER, annotations=policy('strict')) for _ in range(2))
        for container in (first, second):
            until('it is up', lambda c=container: has(c, 'up'))
        self.agent.kill()
        order(first)
        assert self.node.exited(first) == 137
        assert not has(first, 'ran') and not has(first, 'after')
        # And one that starts now is nobody's: this is the hole that the next agent tells of.
        late = self.started(ON_ORDER, annotations=policy('strict'))
        until('it is up', lambda: has(late, 'up'))
        self.agent.up()
        self.agent.connected()
        self.agent.event('the second was taken over', lifecycle(second, 'adopted'))
        self.agent.event('the late one is reported', lambda event: of(late)(event) and
                         event.get('finding', {}).get('rule') == 'unprotected-start')
        for container in (second, late):
            order(container)
            assert self.node.exited(container) == 137
            assert not has(container, 'ran') and not has(container, 'after')
            self.agent.event('the event of the kill', killed_for_bash(container))

    def test_verdicts_stand_while_the_runtime_is_dead_and_it_is_met_again(self):
        first, second = (self.started(ON_ORDER, annotations=policy('strict')) for _ in range(2))
        for container in (first, second):
            until('it is up', lambda c=container: has(c, 'up'))
        self.node.kill()
        order(first)
        self.agent.event('the event of the kill', killed_for_bash(first))
        self.agent.event('its end', lifecycle(first, 'destroyed'))
        assert not has(first, 'ran') and not has(first, 'after')
        self.node.up()
        self.agent.connected()
        order(second)
        assert self.node.exited(second) == 137 and not has(second, 'ran')
        self.agent.event('the event of the kill', killed_for_bash(second))
        self.test_bash_is_killed_before_its_first_instruction_and_the_event_says_whose_it_was()

    def test_nothing_is_left(self):
        self.node.remove_all()
        until('no pod is in the list', lambda: not self.agent.ps())
        # Of links: those of the programs stand in a directory of their own.
        pins = [name for root, _, names in os.walk(f'/sys/fs/bpf/{self.agent.tag}') if '/programs_' not in root for name in names if name.startswith('net_')]
        own = [name for name in pins if name.split('_')[1] == str(os.stat(self.home()).st_ino)]
        assert pins and sorted(pins) == sorted(own), f'pins of cgroups that are gone: {sorted(set(pins) - set(own))}'

    def home(self):
        for root in ('/sys/fs/cgroup/unified', '/sys/fs/cgroup'):
            if os.path.isdir(os.path.join(root, self.agent.tag)):
                return os.path.join(root, self.agent.tag)
        raise AssertionError('the agent has no cgroup')


class ContainerdPods(Pods):
    def test_with_the_drop_in_nothing_is_created_while_the_agent_is_away(self):
        self.node.kill()
        self.node.drop_ins = [os.path.join(os.environ['STOCKADE_SOURCE_DIR'], 'deploy/containerd/stockade.toml')]
        self.node.up()
        self.agent.connected()
        container = self.started(['/bin/sh', '-c', 'echo ran > /out/ran'], annotations=policy('strict'))
        assert self.node.exited(container) == 0 and has(container, 'ran')
        self.agent.kill()
        try:
            for pod in (self.pod(annotations=policy('strict')), self.pod(labels={}, namespace='kube-system')):
                try:
                    self.node.container(pod, ['/bin/true'])
                except Failed as error:
                    assert 'stockade' in str(error), error
                else:
                    raise AssertionError('it was created')
            # The agent's own pod must come up without the agent.
            own = self.pod(labels={}, namespace='stockade', annotations={'tolerate-missing-plugins.stockade.dev': 'true'})
            container = self.node.container(own, ['/bin/sh', '-c', 'echo ran > /out/ran'])
            self.node.start(container)
            assert self.node.exited(container) == 0 and has(container, 'ran')
        finally:
            self.agent.up()
            self.agent.connected()


class RuncPods(Pods):
    """And a runtime that errs, or is of another version."""

    def refused(self, says, **how):
        container = self.node.container(self.pod(annotations=policy('strict')), ['/bin/sh', '-c', 'echo ran > /out/ran'])
        try:
            self.node.start(container, **how)
        except Failed as error:
            assert says in str(error), error
        else:
            raise AssertionError('it was started')
        assert self.node.exited(container) == 137 and not has(container, 'ran')

    def test_a_start_with_a_task_of_another_container_is_refused(self):
        self.refused('which is not that of container', instead={'pid': os.getpid()})

    def test_a_start_with_a_task_that_is_gone_is_refused(self):
        self.refused('first task', instead={'pid': 2 ** 22 - 1})

    def test_a_start_of_another_pods_container_is_refused(self):
        stranger = self.pod(annotations=policy('strict'))
        container = self.node.container(self.pod(annotations=policy('strict')), BASH)
        container['pod'] = {**stranger, 'id': '0' * 64}
        self.node.start(container)  # what was frozen at its creation counts
        assert self.node.exited(container) == 137 and not has(container, 'ran')
        self.agent.event('the event of the kill', killed_for_bash(container))

    def test_labels_that_change_after_the_creation_change_nothing(self):
        container = self.node.container(self.pod(annotations=policy('strict')), BASH)
        container['pod'].update(annotations=policy('watch'), labels={'stockade.dev/session': 'another'})
        self.node.start(container)
        assert self.node.exited(container) == 137 and not has(container, 'ran')
        event = self.agent.event('the event of the kill', killed_for_bash(container))
        assert event['sandbox']['session'] == 'sess-1' and event['policy']['name'] == 'strict', event

    def test_a_start_as_older_runtimes_tell_of_it(self):
        container = self.node.container(self.pod(annotations=policy('strict')), BASH)
        self.node.start(container, method='StateChange', prefix=wire.number(1, 6), pod_field=2, container_field=3)
        assert self.node.exited(container) == 137 and not has(container, 'ran')
        self.agent.event('the event of the kill', killed_for_bash(container))

    def test_a_request_in_single_bytes(self):
        container = self.node.container(self.pod(annotations=policy('strict')), BASH)
        self.node.start(container, cut=1)
        assert self.node.exited(container) == 137 and not has(container, 'ran')
        self.agent.event('the event of the kill', killed_for_bash(container))

    def test_what_it_does_not_know_is_an_error_and_not_the_end(self):
        try:
            self.node.notify('MigrateContainer', b'')
        except Failed as error:
            assert 'no such method' in str(error), error
        else:
            raise AssertionError('it was answered')
        self.test_bash_is_killed_before_its_first_instruction_and_the_event_says_whose_it_was()

    def test_after_bytes_of_something_else_it_comes_again(self):
        self.node.peer.sendall(b'GET / HTTP/1.1\r\n\r\n')
        until('the connection is ended', lambda: 'connection' in self.agent.log() and 'not NRI' in self.agent.log())
        self.agent.connected()
        until('the runtime has it as a plugin', lambda: self.node.peer is not None)
        self.test_bash_is_killed_before_its_first_instruction_and_the_event_says_whose_it_was()

    def test_an_agent_that_hangs_is_dropped_and_the_start_is_reported(self):
        container = self.node.container(self.pod(annotations=policy('strict')), ON_ORDER)
        self.agent.process.send_signal(signal.SIGSTOP)
        try:
            self.node.start(container)  # after the runtime's patience it goes on
        finally:
            self.agent.process.send_signal(signal.SIGCONT)
        until('it is up', lambda: has(container, 'up'))
        self.agent.connected()
        self.agent.event('it is reported', lambda event: of(container)(event) and event.get('finding', {}).get('rule') == 'unprotected-start')
        order(container)
        assert self.node.exited(container) == 137 and not has(container, 'ran')


def main():
    node_type, pods_type = {'containerd': (Node, ContainerdPods), 'runc': (RuncNode, RuncPods)}[sys.argv.pop(1)]
    with node_type() as node, \
            Agent(f'kubernetes:\n  nri: {node.socket}\n  policies: [strict, watch, visited]\n'
                  '  namespaces: {guarded: {policy: strict}}\n') as agent:
        agent.policy('strict', SPEC.format(mode='enforce', entered='deny'))
        agent.policy('visited', SPEC.format(mode='enforce', entered='enforce'))
        agent.policy('watch', SPEC.format(mode='observe', entered='deny'))
        agent.policy('open', SPEC.format(mode='observe', entered='observe'))
        agent.up()
        agent.connected()
        pods = pods_type(node, agent)
        names = [name for name in {**Pods.__dict__, **pods_type.__dict__} if name.startswith('test_')]
        failed = cases.run({name: getattr(pods, name) for name in sorted(names, key=lambda name: name == 'test_nothing_is_left')})
        if failed:
            print(agent.log()[-6000:], node.last_words(), sep='\n---\n', file=sys.stderr)
    return failed


if __name__ == '__main__':
    sys.exit(main())
