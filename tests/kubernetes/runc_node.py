"""A runtime that does nothing but what is asked of it: real containers of runc, and NRI spoken by a script, which can also speak it badly.
To its users it is a node.Node; what a kubelet, CRI and containerd add is not there.
"""

import ctypes
import io
import json
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import tarfile
import tempfile
import threading
import uuid

import image
import nri_wire as wire
from node import Failed, cgroup_roots, until

PR_SET_CHILD_SUBREAPER = 36
CREATED, RUNNING = 1, 3
# As containerd does: who is later than this is dropped, and the container goes on without it.
PATIENCE_S = 2


class RuncNode:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix='stockade-runc.')
        self.cgroup = f'stockade_runc_{os.getpid()}'
        self.containers = []
        self.lock = threading.Lock()
        self.peer = None
        self.buffer = b''
        self.stream = 1
        self.listener = None
        # Whoever starts a container is gone when it ends: the ends come to us.
        assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0

    def file(self, *names):
        return os.path.join(self.folder, *names)

    @property
    def socket(self):
        return self.file('nri.sock')

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *unused):
        self.kill()
        for container in self.containers:
            subprocess.run(['runc', '--root', self.file('state'), 'delete', '-f', container['id']], check=False, stderr=subprocess.DEVNULL)
        for root in cgroup_roots():
            for folder, _, _ in sorted(os.walk(os.path.join(root, self.cgroup)), reverse=True):
                os.rmdir(folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- the runtime's side of NRI

    def up(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.socket)
        self.listener.listen(4)
        threading.Thread(target=self.serve, args=(self.listener,), daemon=True).start()

    def kill(self):
        """It is gone; its containers stay."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.drop()
        os.unlink(self.socket)

    def last_words(self):
        return f'plugin: {self.peer}'

    def drop(self):
        with self.lock:
            if self.peer is not None:
                self.peer.close()
            self.peer = None

    def serve(self, listener):
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with self.lock:
                self.peer, self.buffer, self.stream = peer, b'', 1
                peer.settimeout(PATIENCE_S)
                try:
                    self.handshake()
                except (OSError, AssertionError):
                    self.peer = None

    def handshake(self):
        connection, stream, kind, data = self.receive()
        assert (connection, stream, kind) == (wire.RUNTIME, 1, wire.REQUEST), (connection, stream, kind)
        request = wire.fields(data)
        assert request[2] == b'RegisterPlugin', request
        assert wire.fields(request[3])[1] == b'stockade', request
        self.peer.sendall(wire.trunk(wire.RUNTIME, wire.message(1, wire.RESPONSE, b'')))
        self.ask('Configure', wire.text(2, 'runc-node') + wire.text(3, '1') + wire.number(5, PATIENCE_S * 1000))
        listed = [box for box in self.containers if not box['ended']]
        self.ask('Synchronize', b''.join(wire.text(1, wire.pod(box['pod'])) for box in listed) +
                 b''.join(wire.text(2, wire.container(box, RUNNING if box['started'] else CREATED)) for box in listed))

    def receive(self):
        while True:
            if len(self.buffer) >= 18:
                connection, length = struct.unpack('>II', self.buffer[:8])
                if len(self.buffer) >= 8 + length:
                    size, stream, kind, _ = struct.unpack('>IIBB', self.buffer[8:18])
                    assert size == length - 10, (size, length)
                    data, self.buffer = self.buffer[18:8 + length], self.buffer[8 + length:]
                    return connection, stream, kind, data
            more = self.peer.recv(65536)
            if not more:
                raise OSError('the plugin is gone')
            self.buffer += more

    def ask(self, method, payload, cut=0):
        """Status code and message of the plugin's answer."""
        self.stream += 2
        data = wire.call(self.stream, method, payload)
        if cut:
            for at in range(0, len(data), cut):
                self.peer.sendall(data[at:at + cut])
        else:
            self.peer.sendall(data)
        connection, stream, kind, answer = self.receive()
        assert (connection, stream, kind) == (wire.PLUGIN, self.stream, wire.RESPONSE), (connection, stream, kind)
        status = wire.fields(wire.fields(answer).get(1, b''))
        return status.get(1, 0), status.get(2, b'').decode()

    def notify(self, method, payload, **how):
        """Failed where the plugin refuses. Where there is none, or it hangs, all goes on: as with containerd."""
        with self.lock:
            if self.peer is None:
                return
            try:
                code, said = self.ask(method, payload, **how)
            except OSError:
                self.peer.close()
                self.peer = None
                return
        if code:
            raise Failed(said)

    # --- pods and containers

    def pod(self, name, namespace='default', labels=None, annotations=None, parent=None):
        uid = str(uuid.uuid4())
        return {'id': secrets.token_hex(32), 'name': name, 'namespace': namespace, 'uid': uid, 'labels': labels or {},
                'annotations': annotations or {}, 'parent': f'/{parent or self.cgroup}/pod{uid}', 'containers': 0}

    def container(self, pod, command, name='tool', capabilities=()):
        pod['containers'] += 1
        out = self.file('out', pod['name'], f"{name}{pod['containers']}")
        os.makedirs(out)
        box = {'id': secrets.token_hex(32), 'name': name, 'pod': pod, 'pid': 0, 'command': command, 'out': out, 'started': False,
               'ended': False, 'code': None}
        box['cgroup'] = f"{pod['parent']}/{box['id']}"
        self.notify('CreateContainer', wire.text(1, wire.pod(pod)) + wire.text(2, wire.container(box, 0)))
        bundle = self.file('bundles', box['id'])
        os.makedirs(bundle)
        if not os.path.isdir(self.file('rootfs')):
            with tarfile.open(fileobj=io.BytesIO(image.layer())) as tar:
                tar.extractall(self.file('rootfs'))
        with open(os.path.join(bundle, 'config.json'), 'w', encoding='utf-8') as config:
            json.dump({'ociVersion': '1.0.2', 'root': {'path': self.file('rootfs'), 'readonly': True}, 'hostname': 'pod',
                       'process': {'terminal': False, 'user': {'uid': 0, 'gid': 0}, 'cwd': '/', 'args': command, 'env': ['PATH=/bin'],
                                   'capabilities': {kind: list(capabilities) for kind in ('bounding', 'effective', 'permitted')},
                                   'noNewPrivileges': True},
                       'mounts': [{'destination': '/proc', 'type': 'proc', 'source': 'proc'},
                                  {'destination': '/dev', 'type': 'tmpfs', 'source': 'tmpfs'},
                                  {'destination': '/tmp', 'type': 'tmpfs', 'source': 'tmpfs'},
                                  {'destination': '/out', 'type': 'bind', 'source': out, 'options': ['bind', 'rw']}],
                       'linux': {'cgroupsPath': box['cgroup'],
                                 'namespaces': [{'type': kind} for kind in ('pid', 'mount', 'ipc', 'uts')]}}, config)
        # Its output goes nowhere: a pipe would be waited for as long as the container has it.
        subprocess.run(['runc', '--root', self.file('state'), 'create', '--bundle', bundle, '--pid-file', os.path.join(bundle, 'pid'), box['id']],
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(os.path.join(bundle, 'pid'), encoding='utf-8') as file:
            box['pid'] = int(file.read())
        self.containers.append(box)
        return box

    def start(self, box, **how):
        try:
            self.notify(how.pop('method', 'StartContainer'), how.pop('prefix', b'') +
                        wire.text(how.pop('pod_field', 1), wire.pod(box['pod'])) +
                        wire.text(how.pop('container_field', 2), wire.container({**box, **how.pop('instead', {})}, CREATED)), **how)
        except Failed:
            os.kill(box['pid'], signal.SIGKILL)  # the plugin may have done it already
            raise
        subprocess.run(['runc', '--root', self.file('state'), 'start', box['id']], check=False, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        box['started'] = True

    def poll(self, box):
        if box['code'] is None:
            pid, status = os.waitpid(box['pid'], os.WNOHANG)
            if pid:
                box['code'] = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                box['ended'] = True
                self.notify('StopContainer', wire.text(1, wire.pod(box['pod'])) + wire.text(2, wire.container(box, 4, box['code'])))
        return box['code']

    def exited(self, box):
        until('the container ends', lambda: self.poll(box) is not None)
        return box['code']

    def state(self, box):
        return {'state': 'CONTAINER_RUNNING' if self.poll(box) is None else 'CONTAINER_EXITED'}

    def exec(self, box, *command):
        done = subprocess.run(['runc', '--root', self.file('state'), 'exec', box['id'], *command], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        if done.returncode:
            raise Failed(done.stderr)
        return done.stdout.strip()

    def remove_all(self):
        for box in self.containers:
            subprocess.run(['runc', '--root', self.file('state'), 'delete', '-f', box['id']], check=False, stderr=subprocess.DEVNULL)
            self.poll(box)
            self.notify('RemoveContainer', wire.text(2, wire.container(box, 4)))
        self.containers = []
