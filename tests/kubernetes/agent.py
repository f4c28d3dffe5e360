"""An agent of its own for a test: configuration, folders, pins and cgroup that no other installation has."""

import json
import os
import shutil
import signal
import subprocess
import tempfile

from node import until


class Agent:
    def __init__(self, more, rules='{enabled: false}'):
        self.folder = tempfile.mkdtemp(prefix='stockade-agent.')
        self.tag = f'stockade_pods_{os.getpid()}'
        self.bin = os.environ['STOCKADE_BIN_DIR']
        self.process = None
        os.makedirs(self.file('policies'))
        with open(self.file('config.yaml'), 'w', encoding='utf-8') as config:
            config.write(f'runtime_dir: {self.file("run")}\nstate_dir: {self.file("state")}\npin_dir: /sys/fs/bpf/{self.tag}\n'
                         f'cgroup_name: {self.tag}\npolicy_dirs: [{self.file("policies")}]\nmade_ahead: false\nmetrics: {{listen: "off"}}\n'
                         f'rules: {rules}\n'
                         f'events:\n  exporters: [{{kind: jsonl, path: {self.file("events.jsonl")}}}]\n{more}')

    def file(self, name):
        return os.path.join(self.folder, name)

    def policy(self, name, spec):
        with open(self.file(f'policies/{name}.yaml'), 'w', encoding='utf-8') as file:
            file.write(f'apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {{name: {name}}}\nspec:\n{spec}')

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        shutil.rmtree(f'/sys/fs/bpf/{self.tag}', ignore_errors=True)
        for root in ('/sys/fs/cgroup/unified', '/sys/fs/cgroup'):
            if os.path.isdir(os.path.join(root, self.tag)):
                os.rmdir(os.path.join(root, self.tag))
        shutil.rmtree(self.folder, ignore_errors=True)

    def up(self):
        """Returns when it is ready, and connected where it is to be."""
        reader, writer = os.pipe()
        with open(self.file('log'), 'ab') as log:
            self.process = subprocess.Popen([os.path.join(self.bin, 'stockaded'), '--config', self.file('config.yaml'), '--ready-fd', str(writer)],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[writer], start_new_session=True)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = pipe.readline()
        assert said == 'ready\n', said + self.log()

    def connected(self):
        until('the agent is connected to the runtime', lambda: any(
            row['type'] == 'PodsGuarded' and row['status'] == 'True' for row in self.status()['conditions']))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def log(self):
        with open(self.file('log'), encoding='utf-8', errors='replace') as log:
            return log.read()

    def stockade(self, *words):
        return subprocess.run([os.path.join(self.bin, 'stockade'), '--config', self.file('config.yaml'), *words], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)

    def status(self):
        return json.loads(self.stockade('status', '-o', 'json').stdout)

    def ps(self):
        return json.loads(self.stockade('ps', '-o', 'json').stdout or '[]')

    def events(self):
        """What it has exported until now."""
        try:
            with open(self.file('events.jsonl'), encoding='utf-8') as file:
                lines = file.read().split('\n')[:-1]  # the last may be half of a line
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def event(self, what, fits):
        """The first event that fits, once it is there."""
        return until(what, lambda: next((event for event in self.events() if fits(event)), None))
