#!/usr/bin/python3
"""The manifests of deploy/kubernetes: the policies admit them as they stand, and refuse every single weakening of them.

Weakenings are made here, not listed: each key and each item of a manifest's pod and job is taken away once, and each value that has a
weaker one is given it. What may go without a sandbox being weaker for it is in HARMLESS.
"""

import copy
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases  # noqa: E402
import gate  # noqa: E402
import policies  # noqa: E402

MANIFESTS = os.path.join(policies.ROOT, 'deploy', 'kubernetes')
PODS = ('tool-call-job', 'agent-pod', 'workspace-pod')

# Paths that may be taken away, with the reason. [] stands for any number.
HARMLESS = {
    r'.*\.(args|command|workingDir)(\[\])?': 'what runs is named by its image; what it may do is not',
    r'.*\.args\[\]': 'as above',
    r'.*\.name': 'the API server refuses a container, volume or mount without',
    r'.*\.image': 'the API server refuses a container without, and an image that is not pinned is tried below',
    r'.*\.containers(\[\])?': 'less runs then; the API server refuses none at all',
    r'.*initContainers(\[\])?': 'a step less; the egress guard is asked for by name below',
    r'.*containers\[\]\.securityContext\.runAsGroup': "its pod's stands then",
    r'.*\.template(\.spec)?': 'the API server refuses a Job without',
    r'.*\.mountPath': 'the API server refuses a mount without',
    r'.*volumeMounts(\[\])?': 'a volume less to reach',
    r'.*volumes(\[\])?': 'the API server refuses a mount without its volume',
    r'.*volumes\[\]\.(emptyDir|configMap|secret)(\.(name|secretName))?': 'the API server makes an emptyDir without limit of it, tried below',
    r'.*\.resources\.(requests.*|limits\.ephemeral-storage)': 'requests bind the scheduler; the volumes have limits of their own',
    r'.*\.terminationGracePeriodSeconds': '30 by default, and no more is admitted',
    r'.*\.enableServiceLinks': 'names of services in the environment, which open nothing',
    r'.*securityContext\.fsGroup': 'volumes are then writable to fewer',
    r'.*\.annotations.*': 'a pod without the annotation gets the policy of its labels or namespace, and deny-all without any',
    r'metadata\.labels.*': "a Job's own: those of its pod count (for a pod see OWN_LABELS)",
    r'.*initContainers\[\]\.securityContext\.runAsNonRoot': 'UID 0 without it is refused by the kubelet',
    r'.*initContainers\[\]\.securityContext\.runAsUser': 'as above',
    r'.*initContainers\[\]\.securityContext\.capabilities\.add(\[\])?': 'tried in the agent pod below by policy',
}
# Value by the end of its path -> weaker ones.
WEAKER = {
    r'automountServiceAccountToken': [True],
    r'restartPolicy': ['OnFailure', 'Always'],
    r'backoffLimit': [1],
    r'ttlSecondsAfterFinished': [61],
    r'activeDeadlineSeconds': [3601],
    r'terminationGracePeriodSeconds': [31],
    r'runtimeClassName': ['runsc', ''],
    r'nodeSelector\.stockade\.dev/runtime': ['other'],
    r'dnsPolicy': ['Default', 'ClusterFirst', 'ClusterFirstWithHostNet'],
    r'nameservers\[\]': ['8.8.8.8', '10.96.0.10'],
    r'runAsUser': [0],
    r'runAsGroup': [0],
    r'fsGroup': [0],
    r'(?<!initContainers\[\]\.securityContext\.)runAsNonRoot': [False],
    r'seccompProfile\.type': ['Unconfined'],
    r'allowPrivilegeEscalation': [True],
    r'readOnlyRootFilesystem': [False],
    r'drop\[\]': ['NET_RAW'],
    r'add\[\]': ['SYS_ADMIN'],
    r'\.image': ['registry.example/tools/exec-skill:latest', 'tool'],
    r'mountPath': ['/', '/root', '/home/u', '/proc', '/run/containerd', '/in/docker.sock', '/workspace/.ssh'],
    r'readOnly': [False],
    r'sizeLimit': ['0', '1Ti'],
    r'medium': ['', 'HugePages'],
    r'emptyDir': [{}],
    r'labels\.stockade\.dev/trace': ['', 'none'],
    r'labels\.stockade\.dev/(session|tool|tool-class)': [''],
}
# What a pod's spec may be given.
ADDED = [
    {'hostNetwork': True}, {'hostPID': True}, {'hostIPC': True}, {'shareProcessNamespace': True}, {'nodeName': 'node-1'},
    {'priorityClassName': 'system-node-critical'}, {'resourceClaims': [{'name': 'd', 'resourceClaimName': 'd'}]},
    {'tolerations': [{'operator': 'Exists'}]}, {'tolerations': [{'key': 'stockade.dev/not-attested', 'operator': 'Exists'}]},
]
ADDED_VOLUMES = [
    {'hostPath': {'path': '/'}}, {'hostPath': {'path': '/var/run/docker.sock'}}, {'hostPath': {'path': '/home'}}, {'emptyDir': {}},
    {'persistentVolumeClaim': {'claimName': 'c'}}, {'projected': {'sources': [{'serviceAccountToken': {'path': 't'}}]}},
    {'nfs': {'server': 's', 'path': '/'}}, {'image': {'reference': 'data:1'}},
]
ADDED_TO_CONTAINERS = [
    {'securityContext': {'privileged': True}}, {'securityContext': {'procMount': 'Unmasked'}},
    {'securityContext': {'seccompProfile': {'type': 'Unconfined'}}}, {'securityContext': {'appArmorProfile': {'type': 'Unconfined'}}},
    {'securityContext': {'capabilities': {'add': ['SYS_ADMIN']}}}, {'ports': [{'containerPort': 1, 'hostPort': 1}]},
    {'volumeDevices': [{'name': 'd', 'devicePath': '/dev/xvda'}]}, {'resources': {'limits': {'example.com/device': '1'}}},
    {'securityContext': {'seLinuxOptions': {'type': 'spc_t'}}},
    {'livenessProbe': {'httpGet': {'host': '169.254.169.254', 'port': 80, 'path': '/'}}},
    {'lifecycle': {'preStop': {'httpGet': {'host': '169.254.169.254', 'port': 80, 'path': '/'}}}},
]
ADDED_TO_LASTING = [
    {'securityContext': {'runAsUser': 0}}, {'securityContext': {'runAsNonRoot': False}},
    {'securityContext': {'capabilities': {'drop': ['ALL'], 'add': ['NET_ADMIN']}}},
    {'env': [{'name': 'K', 'valueFrom': {'secretKeyRef': {'name': 'k', 'key': 'k'}}}]}, {'envFrom': [{'secretRef': {'name': 'k'}}]},
]


def manifest(name):
    document = gate.documents(os.path.join(MANIFESTS, name + '.yaml'))[0]
    document['metadata'].setdefault('name', name)
    document['metadata'].pop('generateName', None)
    return document


def pod_of(document):
    return document if document['kind'] == 'Pod' else document['spec']['template']


def walk(node, path=()):
    """Every (path, value) below a node, paths as tuples of keys and numbers."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield path + (key,), value
        if isinstance(value, (dict, list)):
            yield from walk(value, path + (key,))


def text_of(path):
    return ''.join('[]' if isinstance(key, int) else f'.{key}' for key in path)[1:]


def parent_of(document, path):
    for key in path[:-1]:
        document = document[key]
    return document


def merge(old, new):
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            merge(old[key], value)
        else:
            old[key] = value


def taken_away(document):
    is_pod = document['kind'] == 'Pod'
    for path, _ in walk(document):
        text = text_of(path)
        judged = path[0] == 'spec' and len(path) > 1 or path[:2] == ('metadata', 'labels') and is_pod and len(path) > 2
        harmless = [pattern for pattern in HARMLESS if re.fullmatch(pattern, text) and not (is_pod and pattern.startswith('metadata'))]
        if not judged or harmless:
            continue
        weaker = copy.deepcopy(document)
        del parent_of(weaker, path)[path[-1]]
        yield f'without {text}', weaker


def made_weaker(document):
    is_pod = document['kind'] == 'Pod'
    for path, value in walk(document):
        text = text_of(path)
        if not is_pod and path[0] == 'metadata':
            continue
        for pattern, values in WEAKER.items():
            if not re.search(pattern + '$', text):
                continue
            for other in values:
                # The egress guard is UID 0 as it stands, and may write to its own group's files.
                if other != value:
                    weaker = copy.deepcopy(document)
                    parent_of(weaker, path)[path[-1]] = other
                    yield f'{text} = {other!r}', weaker


def given_more(document):
    def changed(change, what):
        weaker = copy.deepcopy(document)
        change(pod_of(weaker)['spec'])
        return what, weaker

    spec = pod_of(document)['spec']
    for more in ADDED:
        yield changed(lambda spec, more=more: merge(spec, more), f'with {more}')
    for source in ADDED_VOLUMES:
        yield changed(lambda spec, source=source: spec['volumes'].append({'name': 'more', **source}), f'with the volume {source}')
    for group in ('initContainers', 'containers'):
        additions = ADDED_TO_CONTAINERS + (ADDED_TO_LASTING if group == 'containers' else [])
        for index, container in enumerate(spec.get(group, [])):
            for more in additions:
                # The router of an agent pod is who has secrets.
                if container['name'] == 'router' and ('env' in more or 'envFrom' in more):
                    continue
                yield changed(lambda spec, more=more, group=group, index=index: merge(spec[group][index], copy.deepcopy(more)),
                              f"{container['name']} with {more}")


def by_hand(document):
    """What no pattern makes."""
    spec = pod_of(document)['spec']
    extra = {'name': 'extra', 'image': 'busybox'}
    for group in ('containers', 'initContainers', 'ephemeralContainers'):
        weaker = copy.deepcopy(document)
        pod_of(weaker)['spec'].setdefault(group, []).append(dict(extra))
        yield f'with a bare container more in {group}', weaker
    if 'initContainers' in spec and spec['initContainers'][0]['name'] == 'egress-guard':
        weaker = copy.deepcopy(document)
        del pod_of(weaker)['spec']['initContainers']
        yield 'without its egress guard', weaker
    for key in ('x.noderesource.dev', 'tolerate-missing-plugins.stockade.dev', 'io.katacontainers.config.hypervisor.path', 'run.oci.handler',
                'dev.gvisor.spec.mount.x.source', 'k8s.v1.cni.cncf.io/networks'):
        weaker = copy.deepcopy(document)
        pod_of(weaker)['metadata'].setdefault('annotations', {})[key] = 'true'
        yield f'with the annotation {key}', weaker


def weakenings(document):
    found = []
    for make in (taken_away, made_weaker, given_more, by_hand):
        for what, weaker in make(document):
            weaker['metadata']['name'] = f'w{len(found)}'
            found.append((what, weaker))
    return found


def all_policies():
    return [policies.policy(folder) for folder in policies.folders() if folder not in policies.SERVER_ONLY]


def all_twins():
    return [document for folder in policies.folders() if folder not in policies.SERVER_ONLY for document in policies.twins(folder)]


def admitted_as_it_stands(name, judges):
    said = policies.judge(judges, [manifest(name)])
    passes = sum(word == 'passes' for word in said.values())
    print(f'    {name}: {passes} policies let it pass, {len(said) - passes} do not look at it')
    yield from (f'{key.policy}: {word}' for key, word in said.items() if word not in ('passes', 'not selected'))
    if passes < 10:
        yield f'only {passes} policies look at it'


def every_weakening_is_refused(name, judges):
    found = weakenings(manifest(name))
    said = policies.judge(judges, [weaker for _, weaker in found])
    print(f'    {name}: {len(found)} weakenings')
    for what, weaker in found:
        words = {key.policy: word for key, word in said.items() if key.resource == gate.name_of(weaker)}
        if 'refused' not in words.values():
            yield f'{what}: no policy refuses it'
        yield from (f'{what}: {policy}: {word}' for policy, word in words.items() if word not in ('refused', 'passes', 'not selected'))
    if len(found) < 50:
        yield f'only {len(found)} weakenings were made'


def others_are_admitted(name, folder):
    """The namespaces and runtime classes, by the policy that looks at their kind."""
    documents = gate.documents(os.path.join(MANIFESTS, name + '.yaml'))
    said = policies.judge([policies.policy(folder)] + policies.twins(folder), documents)
    yield from (f'{key}: {word}' for key, word in said.items() if word != 'passes')


def all_cases():
    found = {'Admitted/namespaces': lambda: others_are_admitted('namespaces', 'namespace-guard'),
             'Admitted/runtime-classes': lambda: others_are_admitted('runtime-classes', 'runtime-pool')}
    for name in PODS:
        for kind, judges in (('kyverno', all_policies), ('native', all_twins)):
            found[f'Admitted/{kind}/{name}'] = lambda name=name, judges=judges: admitted_as_it_stands(name, judges())
            found[f'Weakenings/{kind}/{name}'] = lambda name=name, judges=judges: every_weakening_is_refused(name, judges())
    return found


if __name__ == '__main__':
    sys.exit(cases.run(all_cases()))
