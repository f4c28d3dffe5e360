"""A node for tests: a real containerd with its NRI socket, runc, and pods by CRI; all in a folder of its own. Root.

    with node.Node() as it:
        pod = it.pod('web', namespace='prod', labels={...})
        box = it.container(pod, ['/bin/sleep', '100'])     # created
        it.start(box)                                      # Failed with the runtime's words
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

import image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'kyverno'))
import tools  # noqa: E402

READY_S = 60
CONFIG = """\
version = 4
root = '{d}/root'
state = '{d}/run'
imports = [{imports}]
disabled_plugins = ['io.containerd.snapshotter.v1.erofs', 'io.containerd.differ.v1.erofs', 'io.containerd.mount-handler.v1.erofs',
  'io.containerd.snapshotter.v1.blockfile', 'io.containerd.image-verifier.v1.bindir']
[plugins.'io.containerd.server.v1.grpc']
  address = '{d}/containerd.sock'
[plugins.'io.containerd.server.v1.ttrpc']
  address = '{d}/containerd.sock.ttrpc'
[plugins.'io.containerd.internal.v1.opt']
  path = '{d}/opt'
[plugins.'io.containerd.shim.v1.manager']
  socket_dir = '{d}/run/s'
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = '{d}/nri.sock'
  plugin_path = '{d}/nri/plugins'
  plugin_config_path = '{d}/nri/conf.d'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{image}'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  enable_unprivileged_ports = false
  enable_unprivileged_icmp = false
  enable_criu = false
  cdi_spec_dirs = ['{d}/cdi']
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{d}/cni/bin']
  conf_dir = '{d}/cni/net.d'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '{runc}'
  Root = '{d}/run/runc'
  SystemdCgroup = false
"""


class Failed(Exception):
    """A command of the runtime failed; the text is what it said."""


def until(what, look, seconds=READY_S):
    """Looks until it is true, and returns what was seen."""
    end = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > end:
            raise AssertionError(f'in {seconds} s it did not come to be: {what}')
        time.sleep(0.02)  # between two looks


def cgroup_roots():
    """Of every hierarchy: a container has a directory in each."""
    with open('/proc/self/mounts', encoding='utf-8') as mounts:
        return [line.split()[1] for line in mounts if line.split()[2] in ('cgroup', 'cgroup2')]


class Node:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix='stockade-node.')
        self.cgroup = f'stockade_node_{os.getpid()}'
        self.process = None
        self.log = open(self.file('containerd.log'), 'wb')
        self.drop_ins = []  # files that the configuration takes in

    def file(self, *names):
        return os.path.join(self.folder, *names)

    @property
    def socket(self):
        return self.file('nri.sock')

    def __enter__(self):
        try:
            os.makedirs(self.file('logs'))
            with open(self.file('crictl.yaml'), 'w', encoding='utf-8') as config:
                config.write(f'runtime-endpoint: unix://{self.file("containerd.sock")}\nimage-endpoint: unix://{self.file("containerd.sock")}\n'
                             'timeout: 30\n')
            self.up()
            image.write(self.file('image.tar'))
            self.run(tools.path('ctr'), '-a', self.file('containerd.sock'), '-n', 'k8s.io', 'images', 'import', '--local',
                     self.file('image.tar'))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused):
        if self.process is not None:
            try:
                if self.process.poll() is not None:
                    self.up()
                self.crictl('rmp', '-f', '-a')
            except (Failed, AssertionError) as error:
                print(f'clean up: {error}', file=sys.stderr)
            self.process.terminate()
            self.process.wait()
        self.log.close()
        for root in cgroup_roots():
            top = os.path.join(root, self.cgroup)
            for folder, _, _ in sorted(os.walk(top), reverse=True):
                try:
                    os.rmdir(folder)
                except OSError as error:
                    print(f'clean up: {error}', file=sys.stderr)
        for line in reversed(open('/proc/self/mounts', encoding='utf-8').read().splitlines()):
            if line.split()[1].startswith(self.folder + '/'):
                subprocess.run(['umount', '-l', line.split()[1]], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- the runtime

    def up(self):
        with open(self.file('config.toml'), 'w', encoding='utf-8') as config:
            config.write(CONFIG.format(d=self.folder, image=image.NAME, runc=tools.path('runc'),
                                       imports=', '.join(f"'{name}'" for name in self.drop_ins)))
        # The shim is looked for beside containerd and in PATH.
        path = os.path.dirname(tools.path('containerd')) + ':' + os.environ['PATH']
        self.process = subprocess.Popen([tools.path('containerd'), '--config', self.file('config.toml')], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, env={**os.environ, 'PATH': path}, start_new_session=True)
        until('containerd answers', lambda: self.process.poll() is not None or self.answers())
        if self.process.poll() is not None:
            raise AssertionError('containerd ended: ' + self.last_words())

    def answers(self):
        try:
            return 'true' in self.crictl('info', '-o', 'go-template', '--template', '{{range .status.conditions}}{{.status}} {{end}}')
        except Failed:
            return False

    def last_words(self):
        with open(self.file('containerd.log'), encoding='utf-8', errors='replace') as log:
            return '\n'.join(log.read().splitlines()[-30:])

    def kill(self):
        """As a crash of the runtime: its shims and all containers stay."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    # --- CRI

    @staticmethod
    def run(*command):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                              check=False)
        if done.returncode:
            raise Failed(done.stderr.strip() or f'{command[0]}: exit status {done.returncode}')
        return done.stdout.strip()

    def crictl(self, *words):
        return self.run(tools.path('crictl'), '--config', self.file('crictl.yaml'), *words)

    def write(self, name, value):
        with open(self.file(name), 'w', encoding='utf-8') as file:
            json.dump(value, file)
        return self.file(name)

    def pod(self, name, namespace='default', labels=None, annotations=None, parent=None):
        """Its sandbox runs; in the host's network, which needs no CNI."""
        uid = str(uuid.uuid4())
        config = {'metadata': {'name': name, 'namespace': namespace, 'uid': uid, 'attempt': 0}, 'log_directory': self.file('logs'),
                  'labels': labels or {}, 'annotations': annotations or {},
                  'linux': {'cgroup_parent': f'/{parent or self.cgroup}/pod{uid}',
                            'security_context': {'namespace_options': {'network': 2, 'pid': 1}}}}
        path = self.write(f'{name}.pod.json', config)
        return {'id': self.crictl('runp', path), 'config': path, 'name': name, 'uid': uid, 'containers': 0}

    def container(self, pod, command, name='tool'):
        """Created, not started. Its /out is a folder of the host's, for what it did."""
        pod['containers'] += 1
        out = self.file('out', pod['name'], f"{name}{pod['containers']}")
        os.makedirs(out, exist_ok=True)
        config = {'metadata': {'name': name, 'attempt': pod['containers']}, 'image': {'image': image.NAME}, 'command': command,
                  'mounts': [{'container_path': '/out', 'host_path': out}], 'log_path': f"{pod['name']}.{name}.log", 'linux': {}}
        path = self.write(f"{pod['name']}.{name}.json", config)
        return {'id': self.crictl('create', pod['id'], path, pod['config']), 'out': out, 'pod': pod}

    def start(self, container):
        self.crictl('start', container['id'])

    def state(self, container):
        return json.loads(self.crictl('inspect', container['id']))['status']

    def exec(self, container, *command):
        return self.crictl('exec', container['id'], *command)

    def remove_all(self):
        self.crictl('rmp', '-f', '-a')

    def exited(self, container):
        status = until('the container ends', lambda: self.state(container)['state'] == 'CONTAINER_EXITED' and self.state(container))
        return status['exitCode']
