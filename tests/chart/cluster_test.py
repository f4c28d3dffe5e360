#!/usr/bin/python3
"""`stockade k8s` on what the real kubectl says of a real API server: the doctor before and after the cluster is as it should be, and the
evidence of a namespace."""

import copy
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shared  # noqa: E402
import cases  # noqa: E402
import gate  # noqa: E402
import policies  # noqa: E402
import rendered  # noqa: E402
import server  # noqa: E402
import tools  # noqa: E402

STOCKADE = os.path.join(shared.BIN, 'stockade')
RESOURCES = ('ns,nodes,pods,jobs,cronjobs,deployments,statefulsets,daemonsets,networkpolicies,runtimeclasses,validatingadmissionpolicies,'
             'validatingadmissionpolicybindings')
SECRET = 'hunter2-in-an-environment'
POD = {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {
    'name': 'tool', 'namespace': 'sb', 'labels': {'stockade.dev/session': 's', 'stockade.dev/tool': 't', 'stockade.dev/trace': 'u'}},
    'spec': {'nodeName': 'n1', 'automountServiceAccountToken': False, 'securityContext': {'seccompProfile': {'type': 'RuntimeDefault'}},
             'containers': [{'name': 'c', 'image': 'i', 'env': [{'name': 'TOKEN', 'value': SECRET}]}]}}


class Cluster:
    def __init__(self, api, folder):
        self.api, self.folder = api, folder
        self.helm = rendered.Helm(folder, api)

    def kubectl(self, *arguments):
        return shared.must(tools.path('kubectl'), *arguments, env={'HOME': self.folder, 'KUBECONFIG': self.helm.kubeconfig, 'PATH': ''})

    def doctor(self):
        """{(severity, check, object)} and the exit status."""
        text = self.kubectl('get', RESOURCES, '-A', '-o', 'json')
        done = subprocess.run([STOCKADE, 'k8s', 'doctor', '-', '-o', 'json'], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=60, check=False)
        if done.returncode == 125:
            raise AssertionError(done.stderr)
        return {(one['severity'], one['check'], one['object']) for one in json.loads(done.stdout)['findings']}, done.returncode

    def inspect(self):
        out = os.path.join(self.folder, 'evidence')
        done = subprocess.run([STOCKADE, 'k8s', 'inspect', 'sb', '--out', out, '--kubectl', tools.path('kubectl'), '-o', 'json'],
                              env={'HOME': self.folder, 'KUBECONFIG': self.helm.kubeconfig}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
        return done, out


def node(api):
    document = {'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': 'n1'}}
    api.must(api.create(document))
    path = '/api/v1/nodes/n1'
    info = {'kernelVersion': '6.1.0-13', 'containerRuntimeVersion': 'containerd://2.1.4', 'operatingSystem': 'linux', 'osImage': 'x',
            'machineID': '', 'systemUUID': '', 'bootID': '', 'kubeletVersion': 'v1.35.4', 'kubeProxyVersion': '', 'architecture': 'amd64'}
    api.must(api.call('PATCH', path + '/status', {'status': {'nodeInfo': info}}, content='application/merge-patch+json'))


def a_bare_cluster_is_not_enforceable(cluster):
    api = cluster.api
    node(api)
    api.must(api.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'sb', 'labels': {
        'stockade.dev/sandbox': 'tool', 'pod-security.kubernetes.io/enforce': 'restricted'}}}))
    found, status = cluster.doctor()
    # Without any pod it cannot tell which nodes have an agent, and there is none anyway.
    wanted = {('unenforceable', 'agent-absent', 'cluster'),
              ('unenforceable', 'admission-absent', 'cluster'), ('unenforceable', 'network-open', 'Namespace sb'),
              ('unknown', 'runtime-config-unseen', 'cluster')}
    if found != wanted or status != 1:
        yield f'{status} {sorted(found)}'


def what_is_installed_is_found(cluster):
    """The chart's objects, as the server keeps them, are what the doctor looks for: one after another its findings go."""
    api = cluster.api
    for document in gate.documents(os.path.join(shared.ROOT, 'deploy', 'kubernetes', 'network-policies.yaml'))[:1]:
        api.must(api.create({**document, 'metadata': {**document['metadata'], 'namespace': 'sb'}}))
    for folder in policies.all_folders():
        for document in policies.twins(folder) + policies.bindings(folder):
            api.must(api.create(document))
    api.must(api.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'stockade'}}, group=None))
    daemonset = rendered.find(cluster.helm.template(rendered.values_of('default.yaml')), 'DaemonSet')[0]
    operator = 'stockade:operators'
    role(api, operator)
    api.must(api.create(daemonset, group=operator))
    done = api.call('PATCH', server.path_of(daemonset, daemonset['metadata']['name'], 'status'), {'status': {
        'desiredNumberScheduled': 1, 'currentNumberScheduled': 1, 'numberMisscheduled': 0, 'numberReady': 1}}, operator, 'application/merge-patch+json')
    api.must(done)
    template = daemonset['spec']['template']
    agent = {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {**template['metadata'], 'name': 'agent', 'namespace': 'stockade'},
             'spec': {**template['spec'], 'nodeName': 'n1'}}
    api.must(api.create(agent, group=operator))
    found, status = cluster.doctor()
    if ('unenforceable', 'node-unguarded', 'Node n1') not in found or status != 1:
        yield f'an agent that is not ready: {status} {sorted(found)}'
    ready = {'status': {'conditions': [{'type': 'Ready', 'status': 'True'}]}}
    api.must(api.patch(agent, ready, operator, 'status'))
    found, status = cluster.doctor()
    if found != {('unknown', 'runtime-config-unseen', 'cluster')} or status != 0:
        yield f'the whole cluster: {status} {sorted(found)}'


def role(api, group):
    everything = {'apiVersion': 'rbac.authorization.k8s.io/v1', 'kind': 'ClusterRoleBinding', 'metadata': {'name': 'everything'},
                  'roleRef': {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'ClusterRole', 'name': 'cluster-admin'},
                  'subjects': [{'kind': 'Group', 'apiGroup': 'rbac.authorization.k8s.io', 'name': group}]}
    api.must(api.create(everything))


def evidence_is_kept(cluster):
    done, out = cluster.inspect()
    names = os.listdir(out)
    if len(names) != 1 or not re.fullmatch(r'[0-9]{8}T[0-9]{6}Z', names[0]):
        return [f'{names} {done.stderr}']
    folder = os.path.join(out, names[0])
    manifest = json.loads(done.stdout)
    problems = []
    if os.stat(folder).st_mode & 0o077 or any(os.stat(os.path.join(folder, name)).st_mode & 0o077 for name in os.listdir(folder)):
        problems.append('others may read it')
    listed = {row['file']: row for row in manifest['files']}
    for name in ('namespace.json', 'pods.json', 'network-policies.json', 'admission.json', 'nodes.json', 'agent.json', 'summary.json', 'doctor.json'):
        if not listed.get(name, {}).get('got'):
            problems.append(f'{name}: {listed.get(name)}')
    for name, row in listed.items():
        if row['got']:
            with open(os.path.join(folder, name), 'rb') as file:
                if hashlib.sha256(file.read()).hexdigest() != row['sha256']:
                    problems.append(f'{name} is not what the manifest says')
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding='utf-8') as file:
            if SECRET in file.read():
                problems.append(f'{name} has the value of an environment variable')
    with open(os.path.join(folder, 'summary.json'), encoding='utf-8') as file:
        pods = {pod['name']: pod for pod in json.load(file)['pods']}
    if not pods.get('tool', {}).get('uid'):
        problems.append(f'summary: {pods}')
    # There is no kubelet to have logs from, no kind of ours and no Kyverno: what is missing is told, and only the first is a fault.
    if manifest['complete'] or done.returncode != 1 or 'log-sb-tool.txt' not in done.stderr or 'kyverno' in done.stderr:
        problems.append(f"{done.returncode} {manifest['complete']} {done.stderr}")
    if listed['kyverno.json']['got'] or 'why' not in listed['kyverno.json']:
        problems.append(f"{listed['kyverno.json']}")
    return problems


def before_the_label(cluster):
    """A pod from before the namespace was one of sandboxes."""
    api = cluster.api
    api.must(api.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'old'}}))
    pod = copy.deepcopy(POD)
    pod['metadata']['namespace'] = 'old'
    pod['spec']['hostPID'] = True
    api.must(api.create(pod))
    found, _ = cluster.doctor()
    for check in ('outside', 'host-namespace'):
        if ('unenforceable', check, 'Pod old/tool') not in found:
            yield f'{check} is not in {sorted(found)}'
    api.must(api.delete(pod))


def whole(cluster):
    """As it should be: without the pod of the cases before, and with the label that they took."""
    sandbox = {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'sb'}}
    cluster.api.must(cluster.api.delete(POD))
    cluster.api.must(cluster.api.patch(sandbox, {'metadata': {'labels': {'pod-security.kubernetes.io/enforce': 'restricted'}}}))
    return what_is_installed_is_found(cluster)


def main():
    with tempfile.TemporaryDirectory(prefix='stockade-cluster.') as folder, server.Server() as api:
        cluster = Cluster(api, folder)

        def inspected():
            sandbox = {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'sb'}}
            api.must(api.patch(sandbox, {'metadata': {'labels': {'pod-security.kubernetes.io/enforce': None}}}))
            api.must(api.create(POD))
            return evidence_is_kept(cluster)
        return cases.run({'BareCluster': lambda: a_bare_cluster_is_not_enforceable(cluster), 'Evidence': inspected,
                          'BeforeTheLabel': lambda: before_the_label(cluster), 'WholeCluster': lambda: whole(cluster)})


if __name__ == '__main__':
    sys.exit(main())
