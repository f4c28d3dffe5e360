"""A real API server with its etcd, in a folder of its own, and a client for it. Nothing else of a cluster: no controllers, no nodes.

    with server.Server() as api:
        api.create(pod)                          # Answer(status, message)
        api.create(pod, group='some:group')      # as an ordinary user of that group
"""

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections import namedtuple

import tools

READY_S = 120
# What a change of policies needs to reach the server's own cache: it looks once a second, when the machine is quiet.
SETTLE_S = 60
HOST = '127.0.0.1'

Answer = namedtuple('Answer', 'status message body')
NAMESPACED = {'Pod', 'Job', 'CronJob', 'Deployment', 'ReplicaSet', 'ReplicationController', 'StatefulSet', 'DaemonSet', 'ConfigMap', 'Binding',
              'Service', 'ServiceAccount', 'ResourceQuota', 'LimitRange', 'PolicyException', 'Role', 'NetworkPolicy',
              'CiliumNetworkPolicy', 'SandboxPolicy', 'ServiceMonitor', 'PrometheusRule', 'PodDisruptionBudget', 'RoleBinding'}
PLURALS = {'RuntimeClass': 'runtimeclasses', 'ValidatingAdmissionPolicy': 'validatingadmissionpolicies',
           'ValidatingPolicy': 'validatingpolicies', 'GeneratingPolicy': 'generatingpolicies', 'DeletingPolicy': 'deletingpolicies',
           'NetworkPolicy': 'networkpolicies', 'CiliumNetworkPolicy': 'ciliumnetworkpolicies',
           'SandboxPolicy': 'sandboxpolicies', 'ClusterSandboxPolicy': 'clustersandboxpolicies'}
AUDIT = {'apiVersion': 'audit.k8s.io/v1', 'kind': 'Policy', 'omitStages': ['RequestReceived'], 'rules': [{'level': 'Metadata'}]}


def free_port():
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return sock.getsockname()[1]


def path_of(resource, name=None, subresource=None):
    version, kind = resource['apiVersion'], resource['kind']
    root = f'/apis/{version}' if '/' in version else f'/api/{version}'
    if kind in NAMESPACED:
        root += f"/namespaces/{resource['metadata']['namespace']}"
    return '/'.join(filter(None, [root, PLURALS.get(kind, kind.lower() + 's'), name, subresource]))


class Server:
    """Starts both processes and ends them; ports are free ones, certificates are made on the spot."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix='stockade-api.')
        self.processes = []
        self.port = free_port()

    def file(self, name):
        return os.path.join(self.folder, name)

    def __enter__(self):
        try:
            self.make_keys()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused):
        # KILL: TERM takes the server up to 13 s, and there is nothing to keep.
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def openssl(self, *arguments):
        subprocess.run(['openssl', *arguments], cwd=self.folder, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE)

    def make_keys(self):
        self.openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '1', '-subj', '/CN=ca', '-keyout', 'ca.key', '-out', 'ca.crt')
        with open(self.file('san'), 'w', encoding='utf-8') as file:
            file.write(f'subjectAltName=IP:{HOST}\n')
        for name, subject in (('server', '/CN=kube-apiserver'), ('admin', '/O=system:masters/CN=admin')):
            self.openssl('req', '-newkey', 'rsa:2048', '-nodes', '-subj', subject, '-keyout', f'{name}.key', '-out', f'{name}.csr')
            self.openssl('x509', '-req', '-in', f'{name}.csr', '-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '1',
                         '-extfile', 'san', '-out', f'{name}.crt')
        self.openssl('genrsa', '-out', 'sa.key', '2048')
        self.openssl('rsa', '-in', 'sa.key', '-pubout', '-out', 'sa.pub')
        with open(self.file('audit.yaml'), 'w', encoding='utf-8') as file:
            json.dump(AUDIT, file)
        self.tls = ssl.create_default_context(cafile=self.file('ca.crt'))
        self.tls.load_cert_chain(self.file('admin.crt'), self.file('admin.key'))

    def spawn(self, name, *arguments):
        with open(self.file(f'{name}.log'), 'wb') as log:
            # However this test ends, they end with it.
            command = ['setpriv', '--pdeathsig', 'KILL', tools.path(name), *arguments]
            self.processes.append(subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def start(self):
        client, peer = (f'http://{HOST}:{free_port()}' for _ in range(2))
        self.spawn('etcd', '--data-dir', 'etcd', '--listen-client-urls', client, '--advertise-client-urls', client, '--listen-peer-urls',
                   peer, '--initial-advertise-peer-urls', peer, '--initial-cluster', f'default={peer}', '--unsafe-no-fsync')
        self.spawn('kube-apiserver', f'--etcd-servers={client}', f'--bind-address={HOST}', f'--advertise-address={HOST}',
                   f'--secure-port={self.port}', '--endpoint-reconciler-type=none', '--tls-cert-file=server.crt',
                   '--tls-private-key-file=server.key', '--client-ca-file=ca.crt', '--cert-dir=pki',
                   '--service-account-issuer=https://kubernetes.default.svc', '--service-account-key-file=sa.pub',
                   '--service-account-signing-key-file=sa.key', '--service-cluster-ip-range=10.0.0.0/24', '--authorization-mode=RBAC',
                   '--disable-admission-plugins=ServiceAccount', '--audit-policy-file=audit.yaml', '--audit-log-path=audit.log',
                   # As clusters are set up: their CNI and Stockade itself need it, and it is what the hardening policies keep tools from.
                   '--allow-privileged=true', '--profiling=false')
        self.until(self.is_ready, 'the API server is ready', READY_S)

    def is_ready(self):
        for process in self.processes:
            if process.poll() is not None:
                raise RuntimeError(f'{process.args[3]} ended: {self.log_tail()}')
        try:
            return self.call('GET', '/readyz').status == 200
        except OSError:
            return False

    def log_tail(self):
        with open(self.file('kube-apiserver.log'), encoding='utf-8', errors='replace') as file:
            return file.read()[-2000:]

    @staticmethod
    def until(condition, what, deadline_s=SETTLE_S):
        """Waits for a condition that the server reaches by itself, and of which it does not tell."""
        end = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f'not within {deadline_s} s: {what}')
            time.sleep(0.05)

    def call(self, method, path, body=None, group=None, content='application/json', accept='application/json'):
        headers = {'Content-Type': content, 'Accept': accept}
        if group:
            # An ordinary user who may do all of it, in the given group and no other: RBAC is not what is tested.
            headers.update({'Impersonate-User': f'user-of-{group}', 'Impersonate-Group': group})
        connection = http.client.HTTPSConnection(HOST, self.port, context=self.tls, timeout=60)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors='replace')
        finally:
            connection.close()
        try:
            parsed = json.loads(text)
            return Answer(answer.status, parsed.get('message', ''), parsed)
        except (ValueError, AttributeError):
            return Answer(answer.status, text, None)

    def create(self, resource, group=None, dry_run=False, subresource=None, name=None):
        query = '?fieldValidation=Strict' + ('&dryRun=All' if dry_run else '')
        return self.call('POST', path_of(resource, name, subresource) + query, resource, group)

    def get(self, resource):
        return self.call('GET', path_of(resource, resource['metadata']['name'])).body

    def table(self, path):
        """What kubectl shows of a list: columns and rows."""
        return self.must(self.call('GET', path, accept='application/json;as=Table;v=v1;g=meta.k8s.io')).body

    def patch(self, resource, change, group=None, subresource=None, dry_run=False):
        path = path_of(resource, resource['metadata']['name'], subresource) + ('?dryRun=All' if dry_run else '')
        return self.call('PATCH', path, change, group, 'application/merge-patch+json')

    def delete(self, resource, group=None, dry_run=False):
        path = path_of(resource, resource['metadata']['name']) + ('?dryRun=All' if dry_run else '?gracePeriodSeconds=0')
        return self.call('DELETE', path, None, group)

    def must(self, answer):
        if not 200 <= answer.status < 300:
            raise AssertionError(f'{answer.status}: {answer.message}')
        return answer

    def audit_lines(self):
        with open(self.file('audit.log'), encoding='utf-8') as file:
            return [json.loads(line) for line in file if line.endswith('\n')]
