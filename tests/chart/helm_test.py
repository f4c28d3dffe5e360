#!/usr/bin/python3
"""The chart by the real Helm: linted, rendered, and installed, upgraded and uninstalled at a real API server, with each combination of values
of deploy/helm/stockade/ci. The agent's configuration passes the agent's own check."""

import copy
import os
import re
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shared  # noqa: E402
import cases  # noqa: E402
import gate  # noqa: E402
import rendered  # noqa: E402
import server  # noqa: E402
import tools  # noqa: E402
import yaml  # noqa: E402

# Values -> a part of what Helm says of them.
BAD_VALUES = {
    'agent.backend=fast': '/agent/backend',
    'agent.bakcend=lsm': 'bakcend',
    'image.digest=sha256:1': '/image/digest',
    'metrics.port=0': '/metrics/port',
    'metrics.address=localhost': '/metrics/address',
    'events.jsonl.path=events.jsonl': '/events/jsonl/path',
    'events.jsonl.path=/home/x': 'below /var/log/stockade/',
    'updateStrategy.rollingUpdate.maxSurge=1': '/updateStrategy/rollingUpdate/maxSurge',
    'security.toolSandbox.networkEgress=open': '/security/toolSandbox/networkEgress',
    'security.sandboxNamespaces[0].name=x': '/security/sandboxNamespaces/0',
    'events.kafka[0].name=x': '/events/kafka/0',
    'securityContext.privileged=true': 'privileged',
    'serviceAccount.create=false': 'serviceAccount.name is needed',
    'admission.native.enabled=true': 'protect the namespace stockade',
    'kyverno.policies.enabled=true': 'protect the namespace stockade',
}
KAFKA_SECRET = {'events': {'kafka': [{'name': 'x', 'brokers': ['a:1'], 'topic': 't', 'tls': False, 'options': {'password': 'secret'}}]}}
CAPABILITIES = ['BPF', 'PERFMON', 'NET_ADMIN', 'SYS_PTRACE', 'KILL', 'DAC_READ_SEARCH', 'DAC_OVERRIDE', 'SETPCAP']
OPERATOR = ('--kube-as-user', 'operator', '--kube-as-group', 'stockade:operators', '--kube-as-group', 'system:masters')


def versions_agree():
    with open(os.path.join(shared.ROOT, 'userspace', 'cmd', 'agent_version.cc'), encoding='utf-8') as file:
        agent = re.search(r'kVersion\[\] = "([^"]+)"', file.read()).group(1)
    chart = gate.documents(os.path.join(shared.CHART, 'Chart.yaml'))[0]['appVersion']
    return [] if agent == chart else [f'appVersion {chart}, the agent is {agent}']


def lints(helm, name):
    status, output, errors = helm.run('lint', '--strict', shared.CHART, '--namespace', rendered.NAMESPACE, '--values', rendered.values_of(name))
    return [] if status == 0 and '0 chart(s) failed' in output else [f'{status}\n{output}\n{errors}']


def refuses_values(helm, folder):
    def render(*flags):
        return helm.run('template', 'x', shared.CHART, '--namespace', 'elsewhere', *flags)
    if render()[0] != 0:
        yield f'the chart itself: {render()}'
    path = os.path.join(folder, 'bad.yaml')
    with open(path, 'w', encoding='utf-8') as file:
        yaml.safe_dump(KAFKA_SECRET, file)
    probes = {one: (('--set', one), words) for one, words in BAD_VALUES.items()}
    probes['a password'] = (('--values', path), "invalid propertyName 'password'")
    for what, (flags, words) in probes.items():
        status, _, errors = render(*flags)
        if status == 0 or words not in errors:
            yield f'{what}: {status} {errors}'


def configuration_passes(helm, name):
    """The agent's own check takes what the chart writes, without a warning; with one word changed it does not."""
    documents = helm.template(rendered.values_of(name))
    with tempfile.TemporaryDirectory(prefix='stockade-chart.') as folder:
        path = rendered.write_files(documents, folder)
        check = (os.path.join(shared.BIN, 'stockaded'), '--config', path, '--check')
        status, output, errors = shared.run(*check)
        if status or ': ok' not in output:
            yield f'{status} {output}{errors}'
        with open(path, 'a', encoding='utf-8') as file:
            file.write('kills_per_minut: 1\n')
        if shared.run(*check)[0] != 1:
            yield 'a key that does not exist passes'
        policies = os.path.join(folder, 'policies.d')
        for policy in os.listdir(policies) if os.path.isdir(policies) else []:
            status, output, errors = shared.run(os.path.join(shared.BIN, 'stockade'), 'policy', 'check', os.path.join(policies, policy))
            if status:
                yield f'{policy}: {output}{errors}'


def secrets_stay_out(helm):
    documents = helm.template(rendered.values_of('observed.yaml'))
    config = yaml.safe_load(rendered.agent_config(documents))
    kafka = next(exporter for exporter in config['events']['exporters'] if exporter.get('name') == 'siem')
    wanted = {'passwordfile': 'password', 'cacertfile': 'ca', 'certfile': 'cert', 'keyfile': 'key'}
    volume = next(volume for volume in find_pod(documents)['spec']['volumes'] if volume['name'] == 'config')['projected']
    paths = {item['path'] for source in volume['sources'] for item in source.get('secret', {}).get('items', [])}
    for key, file in wanted.items():
        if kafka.get(key) != f'/etc/stockade/kafka/siem/{file}' or f'kafka/siem/{file}' not in paths:
            yield f'{key}: {kafka.get(key)}, mounted {sorted(paths)}'
    if 'password' in kafka or rendered.find(documents, 'Secret'):
        yield 'a secret is in what Helm stores'
    if volume['defaultMode'] != 0o400:
        yield f'mode {volume["defaultMode"]:o}'
    # What is merged over the chart's own leaves the rest of it as it is.
    if config['rules'].get('max_groups') != 128 or not config['rules']['dry_run'] or config['kills_per_minute'] != 10:
        yield f'merged: {config}'


def objects_are_mounted(helm):
    """Policies in ConfigMaps of the operator's: looked at before the others, and no pod is made anew for them."""
    with_them, without = helm.template(rendered.values_of('closed.yaml')), helm.template(rendered.values_of('default.yaml'))
    pod = find_pod(with_them)['spec']
    mount = next(mount for mount in pod['containers'][0]['volumeMounts'] if mount['name'] == 'objects')
    first = yaml.safe_load(rendered.agent_config(with_them))['policy_dirs'][0]
    if mount['mountPath'] != first or not mount['readOnly'] or first in yaml.safe_load(rendered.agent_config(without))['policy_dirs']:
        yield f'{mount}, and the agent looks into {first}'
    volume = next(volume for volume in pod['volumes'] if volume['name'] == 'objects')['projected']
    wanted = [{'configMap': {'name': name, 'optional': True}} for name in ('sandbox-policies', 'more-policies')]
    if volume['sources'] != wanted or volume['defaultMode'] != 0o400:
        yield f'{volume}'
    if any(volume['name'] == 'objects' for volume in find_pod(without)['spec']['volumes']):
        yield 'it is there when nobody asks for it'


def find_pod(documents):
    return rendered.find(documents, 'DaemonSet')[0]['spec']['template']


def confined(helm):
    """What the agent's pod may do, in each combination."""
    for name in rendered.combinations():
        pod = find_pod(helm.template(rendered.values_of(name)))['spec']
        container = pod['containers'][0]
        context = container['securityContext']
        extra = ['SYSLOG'] if name == 'closed.yaml' else []
        if context['privileged'] or context['allowPrivilegeEscalation'] or not context['readOnlyRootFilesystem']:
            yield f'{name}: {context}'
        if context['capabilities'] != {'drop': ['ALL'], 'add': CAPABILITIES + extra}:
            yield f"{name}: {context['capabilities']}"
        if pod['automountServiceAccountToken'] or len(pod['containers']) != 1 or pod.get('initContainers'):
            yield f'{name}: {pod}'
        if any(mount.get('mountPropagation') == 'Bidirectional' for mount in container['volumeMounts']):
            yield f'{name}: Bidirectional needs a privileged container'
        sources = {volume['name']: volume.get('hostPath', {}).get('path') for volume in pod['volumes']}
        writable = {sources[mount['name']] for mount in container['volumeMounts'] if not mount.get('readOnly')}
        nri = {'/var/run/nri'} if name != 'bare.yaml' else set()
        if writable != {'/run/stockade', '/var/lib/stockade', '/var/log/stockade', '/sys/fs/bpf', '/sys/fs/cgroup'} | nri:
            yield f'{name}: writable are {writable}'


def what_is_chosen(helm):
    """Toggles do what they say, by the objects that come of them."""
    def names(values, kind):
        return {document['metadata']['name'] for document in rendered.find(helm.template(rendered.values_of(values)), kind)}
    folder = os.path.join(shared.ROOT, 'kyverno')
    judges = sorted(name for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name)))
    expected = {
        ('default.yaml', 'ValidatingPolicy'): set(), ('default.yaml', 'ValidatingAdmissionPolicy'): set(), ('default.yaml', 'RuntimeClass'): set(),
        ('default.yaml', 'CustomResourceDefinition'): {'sandboxpolicies.stockade.dev', 'clustersandboxpolicies.stockade.dev'},
        ('bare.yaml', 'CustomResourceDefinition'): set(), ('bare.yaml', 'Service'): set(), ('bare.yaml', 'ServiceAccount'): set(),
        ('platform.yaml', 'RuntimeClass'): {'runc', 'gvisor', 'kata-qemu'},
        ('platform.yaml', 'Namespace'): {'openclaw', 'openclaw-tools'},
        ('platform.yaml', 'NetworkPolicy'): {'stockade-default-deny'},
        ('runtime-class.yaml', 'ValidatingPolicy'): {'stockade-runtime-class', 'stockade-runtime-pool'},
        ('runtime-class.yaml', 'ClusterRole'): set(),
        ('native.yaml', 'NetworkPolicy'): {'stockade-default-deny', 'stockade-egress'},
        ('observed.yaml', 'ServiceMonitor'): {'guard-stockade'}, ('observed.yaml', 'PrometheusRule'): {'guard-stockade'},
        ('observed.yaml', 'PodDisruptionBudget'): {'guard-stockade'}, ('closed.yaml', 'NetworkPolicy'): {'guard'}}
    for (values, kind), wanted in expected.items():
        if names(values, kind) != wanted:
            yield f'{values}: {kind} {sorted(names(values, kind))}'
    # Every folder of kyverno/ comes, and tool-job only where Jobs are what is wanted.
    found = {name for kind in ('ValidatingPolicy', 'GeneratingPolicy', 'DeletingPolicy') for name in names('platform.yaml', kind)}
    if found != {f'stockade-{name}' for name in judges}:
        yield f'platform.yaml: {found ^ {f"stockade-{name}" for name in judges}}'
    twins = [document['metadata']['name'] for name in judges if name != 'tool-job' for file in ('twin.yaml', 'binding.yaml')
             if os.path.exists(os.path.join(folder, name, file)) for document in gate.documents(os.path.join(folder, name, file))]
    found = names('native.yaml', 'ValidatingAdmissionPolicy') | names('native.yaml', 'ValidatingAdmissionPolicyBinding')
    if found != set(twins):
        yield f'native.yaml: {found ^ set(twins)}'


# --- at a real API server ------------------------------------------------------------------------------------------------------------

def prepare(api):
    for module, wanted in (('kyverno-crds', None), ('prometheus-operator', ('servicemonitors', 'prometheusrules'))):
        folder = os.path.join(tools.module_dir(module), 'crds')
        for name in sorted(os.listdir(folder)):
            if wanted is None or any(word in name for word in wanted):
                for document in gate.documents(os.path.join(folder, name)):
                    api.must(api.create(document))
    api.must(api.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {
        'name': rendered.NAMESPACE, 'labels': {'pod-security.kubernetes.io/enforce': 'privileged'}}}))
    for path in ('/apis/policies.kyverno.io/v1/validatingpolicies', '/apis/monitoring.coreos.com/v1/servicemonitors'):
        api.until(lambda path=path: api.call('GET', path).status == 200, f'{path} is served')


def server_takes_each(helm, api, name):
    """Every object, strictly: an unknown field or a word that is none is an error. And the pods that the DaemonSet would make."""
    kinds = set()
    documents = with_namespace(helm.template(rendered.values_of(name)))
    for document in documents:
        resource = copy.deepcopy(document)
        answer = api.create(resource, dry_run=True)
        # Of a namespace that this release makes, dry runs see nothing.
        absent = answer.status == 404 and f"namespaces \"{resource['metadata'].get('namespace')}\" not found" in answer.message
        if answer.status != 201 and not (absent and resource['kind'] == 'NetworkPolicy'):
            yield f"{resource['kind']} {resource['metadata']['name']}: {answer.status} {answer.message}"
        kinds.add(resource['kind'])
    template = find_pod(documents)
    pod = {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {**template['metadata'], 'name': 'agent', 'namespace': rendered.NAMESPACE},
           'spec': {**template['spec'], 'nodeName': 'node'}}
    answer = api.create(pod, dry_run=True)
    if answer.status != 201:
        yield f'the pod: {answer.status} {answer.message}'
    pod['spec']['containers'][0]['securityContext']['priviledged'] = False
    if api.create(pod, dry_run=True).status != 400:
        yield 'a misspelt field passes: validation is not strict'
    print(f'    {len(documents)} objects of {len(kinds)} kinds')


def living(api, documents):
    return {f"{document['kind']} {document['metadata']['name']}" for document in documents
            if api.call('GET', server.path_of(document, document['metadata']['name'])).status == 200}


def with_namespace(documents):
    for document in documents:
        if document['kind'] in server.NAMESPACED:
            document['metadata'].setdefault('namespace', rendered.NAMESPACE)
    return documents


def release_lives(helm, api, name):
    """install, upgrade, uninstall."""
    values = ('--values', rendered.values_of(name), '--namespace', rendered.NAMESPACE)
    native = name == 'native.yaml'
    documents = with_namespace(helm.template(rendered.values_of(name)))
    everything = living_names(documents)
    helm.must('install', rendered.RELEASE, shared.CHART, *values)
    if living(api, documents) != everything:
        yield f'after install there is not: {everything - living(api, documents)}'
    if native:
        api.until(lambda: refused_in_sandbox(api), 'the native policies are in force')
        status, _, errors = helm.run('upgrade', rendered.RELEASE, shared.CHART, *values)
        if status == 0 or 'stockade:operators' not in errors:
            yield f'who is no operator upgrades the agent: {status} {errors}'
    who = OPERATOR if native else ()
    before = daemonset(api, documents)
    helm.must('upgrade', rendered.RELEASE, shared.CHART, *values, '--set', 'agent.killsPerMinute=7', *who)
    after = daemonset(api, documents)
    yield from upgraded(before, after)
    helm.must('uninstall', rendered.RELEASE, '--namespace', rendered.NAMESPACE, *who)
    kept = {f"{document['kind']} {document['metadata']['name']}" for document in documents
            if document['metadata'].get('annotations', {}).get('helm.sh/resource-policy') == 'keep'}
    left = living(api, documents)
    if left != kept:
        yield f'after uninstall: {left ^ kept}'
    for document in documents:
        if f"{document['kind']} {document['metadata']['name']}" in kept and document['kind'] != 'Namespace':
            api.must(api.delete(document))
    if any(kind.startswith('CustomResourceDefinition') for kind in kept):
        api.until(lambda: api.call('GET', '/apis/stockade.dev/v1/sandboxpolicies').status == 404, 'our kinds are gone')


def living_names(documents):
    return {f"{document['kind']} {document['metadata']['name']}" for document in documents}


def daemonset(api, documents):
    return api.get(rendered.find(documents, 'DaemonSet')[0])


def upgraded(before, after):
    """In place, and the pods follow: not two at once on a node, which the agent's lock would not let start."""
    if before['metadata']['uid'] != after['metadata']['uid']:
        yield 'the DaemonSet was made anew: every node without an agent at once'
    sums = [one['spec']['template']['metadata']['annotations']['checksum/config'] for one in (before, after)]
    if sums[0] == sums[1]:
        yield 'a changed configuration changes no pod'
    strategy = after['spec']['updateStrategy']
    if strategy['type'] == 'RollingUpdate' and strategy['rollingUpdate'].get('maxSurge', 0) not in (0, '0'):
        yield f'{strategy}'


def refused_in_sandbox(api):
    pod = {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'x', 'namespace': 'sb'},
           'spec': {'containers': [{'name': 'x', 'image': 'x'}], 'volumes': [{'name': 'x', 'hostPath': {'path': '/'}}]}}
    answer = api.create(pod, dry_run=True)
    return answer.status == 422 and 'stockade-' in answer.message


def main():
    with tempfile.TemporaryDirectory(prefix='stockade-helm.') as folder, server.Server() as api:
        helm = rendered.Helm(folder, api)
        found = {'VersionsAgree': versions_agree, 'RefusesValues': lambda: refuses_values(helm, folder),
                 'SecretsStayOut': lambda: secrets_stay_out(helm), 'Objects': lambda: objects_are_mounted(helm),
                 'Confined': lambda: confined(helm), 'WhatIsChosen': lambda: what_is_chosen(helm)}
        for name in rendered.combinations():
            found[f'Lints/{name}'] = lambda name=name: lints(helm, name)
            found[f'Configuration/{name}'] = lambda name=name: configuration_passes(helm, name)
        prepare(api)
        # The last one leaves policies behind that protect what it made.
        for name in sorted(rendered.combinations(), key=lambda name: name == 'native.yaml'):
            found[f'ServerTakes/{name}'] = lambda name=name: server_takes_each(helm, api, name)
            found[f'Release/{name}'] = lambda name=name: release_lives(helm, api, name)
        return cases.run(found)


if __name__ == '__main__':
    sys.exit(main())
