#!/usr/bin/python3
"""The agent as the chart's pods start it, on this kernel: in the root of its image, which is read-only, with the mounts and capabilities of the
rendered DaemonSet and no others, judged by the probes that stand there. There is no kubelet here; contained.py takes its place.
"""

import copy
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shared  # noqa: E402
import cases  # noqa: E402
import contained  # noqa: E402
import rendered  # noqa: E402

READY_S = 180
PROBE_S = 30
# What it keeps once it is attached; the others are to get there.
KEPT = ('BPF', 'PERFMON', 'NET_ADMIN', 'SYS_PTRACE', 'KILL', 'DAC_READ_SEARCH')


def free_port():
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        return sock.getsockname()[1]


class Pod:
    """One place for agents that come one after another, as on a node."""

    def __init__(self, scratch):
        self.scratch = scratch
        self.name = f'stockade-chart-{os.getpid()}'
        self.port = free_port()
        self.root = os.path.join(scratch, 'root')
        shared.must(os.path.join(shared.ROOT, 'deploy', 'image', 'make_root.py'), os.path.dirname(shared.BIN), self.root)
        helm = rendered.Helm(scratch)
        # Beside whatever else runs on this machine, which has no container runtime.
        documents = helm.template(rendered.values_of('default.yaml'), sets=[
            f'metrics.port={self.port}', 'nri.enabled=false', f'agent.config.cgroup_name={self.name}', f'agent.config.pin_dir=/sys/fs/bpf/{self.name}'])
        self.spec = rendered.find(documents, 'DaemonSet')[0]['spec']['template']['spec']
        self.container = self.spec['containers'][0]
        os.makedirs(os.path.join(scratch, 'etc'))
        rendered.write_files(documents, os.path.join(scratch, 'etc'), moved=False)
        self.process = None
        self.log = os.path.join(scratch, 'log.json')

    def mounts(self):
        volumes = {volume['name']: volume for volume in self.spec['volumes']}
        for mount in self.container['volumeMounts']:
            source = volumes[mount['name']].get('hostPath', {}).get('path')
            if source is None:
                source = os.path.join(self.scratch, 'etc')
            elif not source.startswith('/sys/'):
                source = os.path.join(self.scratch, 'node', mount['name'])
                os.makedirs(source, exist_ok=True)
            yield {'path': mount['mountPath'], 'source': source, 'readOnly': mount.get('readOnly', False)}

    def contained(self, arguments, **more):
        context = self.container['securityContext']
        return {'root': self.root, 'mounts': list(self.mounts()), 'readOnlyRoot': context['readOnlyRootFilesystem'],
                'capabilities': context['capabilities']['add'], 'noNewPrivileges': not context['allowPrivilegeEscalation'],
                'arguments': arguments, **more}

    def start(self, **more):
        command = self.container['command'] + self.container['args']
        script = os.path.join(shared.HERE, 'contained.py')
        with open(self.log, 'ab') as log:
            self.process = subprocess.Popen(
                ['setpriv', '--pdeathsig', 'KILL', 'unshare', '--mount', sys.executable, script, json.dumps(self.contained(command, **more))],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def probe(self, name):
        """(exit status, output) of an exec probe, in the container of the agent."""
        command = self.container[name]['exec']['command']
        script = os.path.join(shared.HERE, 'contained.py')
        spec = self.contained(command, join=self.process.pid)
        done = subprocess.run(['unshare', '--mount', sys.executable, script, json.dumps(spec)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PROBE_S, check=False)
        return done.returncode, done.stdout

    def until_ready(self):
        end = time.monotonic() + READY_S
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f'the agent ended: {self.log_text()[-2000:]}')
            # A kubelet starts the other probes once this one has passed.
            if self.probe('startupProbe')[0] == 0 and self.probe('readinessProbe')[0] == 0:
                return
            if time.monotonic() > end:
                raise TimeoutError(f"not ready: {self.probe('readinessProbe')} {self.log_text()[-2000:]}")
            time.sleep(0.1)

    def log_text(self):
        with open(self.log, encoding='utf-8', errors='replace') as file:
            return file.read()

    def status(self, key):
        with open(f'/proc/{self.process.pid}/status', encoding='utf-8') as file:
            return next(line.split()[1] for line in file if line.startswith(key))

    def end(self, how=signal.SIGKILL):
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
        if self.process:
            self.process.wait(60)

    def clean(self):
        self.end()
        shutil.rmtree(f'/sys/fs/bpf/{self.name}', ignore_errors=True)
        for base, folders, _ in os.walk('/sys/fs/cgroup'):
            if self.name in folders:
                # Of cgroups only folders can be removed, the inner ones first.
                for inner, _, _ in os.walk(os.path.join(base, self.name), topdown=False):
                    os.rmdir(inner)
                folders.remove(self.name)


def becomes_ready(pod):
    pod.start()
    pod.until_ready()
    status, output = pod.probe('livenessProbe')
    if status:
        yield f'liveness: {status} {output}'
    status, output = pod.probe('readinessProbe')
    for line in ('Ready            True', 'Enforced         True'):
        if line not in output:
            yield f'attested: {output}'


def keeps_no_more_than_it_needs(pod):
    kept = sum(1 << contained.CAPABILITIES[name] for name in KEPT)
    for key in ('CapBnd', 'CapPrm', 'CapEff'):
        if int(pod.status(key + ':'), 16) != kept:
            yield f"{key} is {pod.status(key + ':')}, not {kept:x}"
    if pod.status('NoNewPrivs:') != '1':
        yield 'it may gain privileges'
    with open(f'/proc/{pod.process.pid}/mountinfo', encoding='utf-8') as file:
        root = [line.split() for line in file if line.split()[4] == '/'][-1]
    if 'ro' not in root[5].split(','):
        yield f'its root is {root[5]}'


def is_seen_by_prometheus(pod):
    with urllib.request.urlopen(f'http://127.0.0.1:{pod.port}/metrics', timeout=10) as answer:
        text = answer.read().decode()
    return [] if 'stockade_condition{' in text else [text[:500]]


def logs_json(pod):
    lines = [line for line in pod.log_text().splitlines() if line.strip()]
    if not lines:
        yield 'no log'
    for line in lines:
        try:
            json.loads(line)
        except ValueError:
            yield line


def is_followed_without_a_gap(pod):
    """The next agent finds the pins of the one before it, which was killed; meanwhile the probes fail."""
    pins = f'/sys/fs/bpf/{pod.name}'
    before = sorted(os.listdir(pins))
    pod.process.send_signal(signal.SIGSTOP)
    pod.process.kill()
    pod.process.wait(60)
    if sorted(os.listdir(pins)) != before or not before:
        yield f'pins: {before}, after the kill {sorted(os.listdir(pins))}'
    pod.start()
    pod.until_ready()
    if 'pins adopted' not in pod.log_text():
        yield f'not adopted: {pod.log_text()[-2000:]}'


def probes_tell(pod):
    """Of an agent that hangs no probe passes: the control of the others."""
    pod.process.send_signal(signal.SIGSTOP)
    try:
        for name in ('startupProbe', 'readinessProbe', 'livenessProbe'):
            try:
                status, output = pod.probe(name)
            except subprocess.TimeoutExpired:
                continue  # as a kubelet takes it
            if status == 0:
                yield f'{name} passes: {output}'
    finally:
        pod.process.send_signal(signal.SIGCONT)
    pod.until_ready()


def needs_what_is_given(pod):
    """Without a capability that loading needs, it does not start, and says so."""
    pod.end(signal.SIGTERM)
    for name in ('BPF', 'PERFMON', 'NET_ADMIN', 'DAC_OVERRIDE', 'SETPCAP'):
        less = copy.copy(pod.container['securityContext']['capabilities']['add'])
        less.remove(name)
        pod.start(capabilities=less)
        try:
            status = pod.process.wait(60)
        except subprocess.TimeoutExpired:
            status = 0
            pod.end()
        if status == 0:
            yield f'without {name} it starts'


def main():
    with tempfile.TemporaryDirectory(prefix='stockade-agent.') as scratch:
        pod = Pod(scratch)
        try:
            return cases.run({'BecomesReady': lambda: becomes_ready(pod), 'KeepsNoMore': lambda: keeps_no_more_than_it_needs(pod),
                              'Metrics': lambda: is_seen_by_prometheus(pod), 'LogsJson': lambda: logs_json(pod),
                              'ProbesTell': lambda: probes_tell(pod), 'Followed': lambda: is_followed_without_a_gap(pod),
                              'NeedsWhatIsGiven': lambda: needs_what_is_given(pod)})
        finally:
            pod.clean()


if __name__ == '__main__':
    sys.exit(main())
