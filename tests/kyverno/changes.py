"""Changes and connections that only a real API server can be asked for: one probe each, refused by the twin of its folder."""

import time

import policies
from twins import bound, in_force, refused_by

POD = {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'p', 'namespace': 'sb', 'labels': {
    'stockade.dev/session': 's1', 'stockade.dev/tool': 't', 'stockade.dev/tool-class': 'standard',
    'stockade.dev/trace': '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'}},
       'spec': {'containers': [{'name': 't', 'image': 'registry.example/tool:1'}]}}
OPERATORS, GLASS, TENANT = 'stockade:operators', 'stockade:break-glass', 'tenant'
# Groups of ordinary users; each may do everything as far as RBAC goes.
AGENT, KUBELET, CONTROLLERS = 'system:serviceaccounts:stockade', 'system:nodes', 'system:serviceaccounts:kube-system'
GROUPS = (OPERATORS, GLASS, TENANT, AGENT, KUBELET, CONTROLLERS)
PART_OF = {'app.kubernetes.io/part-of': 'stockade'}


# A kind of which the guard knows the name alone.
CILIUM = {'apiVersion': 'apiextensions.k8s.io/v1', 'kind': 'CustomResourceDefinition', 'metadata': {'name': 'ciliumnetworkpolicies.cilium.io'},
          'spec': {'group': 'cilium.io', 'scope': 'Namespaced', 'names': {'plural': 'ciliumnetworkpolicies', 'kind': 'CiliumNetworkPolicy'},
                   'versions': [{'name': 'v2', 'served': True, 'storage': True, 'schema': {'openAPIV3Schema': {
                       'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}}}]}}


def label(key, value):
    return {'metadata': {'labels': {key: value}}}


def binding(**metadata):
    return {'apiVersion': 'v1', 'kind': 'Binding', 'metadata': {'name': 'p', 'namespace': 'sb', **metadata},
            'target': {'apiVersion': 'v1', 'kind': 'Node', 'name': 'node-1'}}


def namespace(name, **labels):
    return {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': name, 'labels': labels}}


class Probe:
    """One request that is to be refused, the objects that it needs, and requests beside it that must stay possible."""

    def __init__(self, ask, objects=(), allowed=()):
        self.ask, self.objects = ask, objects
        self._allowed = dict(allowed)

    def prepare(self, api):
        for resource in self.objects:
            api.must(api.create(resource))

    def allowed(self, api):
        """[(who or what, answer)]"""
        return [(name, ask(api)) for name, ask in self._allowed.items()]

    def clean(self, api):
        for resource in reversed(self.objects):
            if resource['kind'] != 'Namespace':  # without a controller they stay for good; each probe has its own
                api.must(api.delete(resource))


def patched(resource, change, objects=None, **allowed):
    """A change of a resource by a tenant."""
    by = {who: (lambda api, group=group: api.patch(resource, change, group, dry_run=True)) for who, group in allowed.items()}
    return Probe(lambda api: api.patch(resource, change, TENANT, dry_run=True), objects or [resource], by)


def connection(what, method='POST', group=TENANT, **allowed):
    by = {who: (lambda api, group=other: api.call(method, what, None, group)) for who, other in allowed.items()}
    return Probe(lambda api: api.call(method, what, None, group), [POD] if '/pods/p/' in what else [], by)


def frozen_labels():
    yield 'label', patched(POD, label('stockade.dev/session', 's2'))
    yield 'label_taken_away', patched(POD, label('stockade.dev/tool', None))
    yield 'label_added', patched(POD, label('stockade.dev/more', 'x'))
    yield 'annotation', patched(POD, {'metadata': {'annotations': {'stockade.dev/policy': 'open'}}})
    other = {'other label': lambda api: api.patch(POD, label('app', 'x'), TENANT, dry_run=True)}
    status = lambda api: api.patch(POD, label('stockade.dev/session', 's2'), TENANT, 'status', True)  # noqa: E731
    yield 'label_by_status', Probe(status, [POD], other)
    for name, key in (('runtime_annotation', 'run.oci.handler'), ('nri_annotation', 'x.noderesource.dev'), ('odd_case', 'Stockade.dev/policy')):
        order = {'metadata': {'annotations': {key: 'x'}}}
        yield name, patched(POD, order)
        by_status = lambda api, order=order: api.patch(POD, order, TENANT, 'status', True)  # noqa: E731
        address = {'metadata': {'annotations': {'cni.projectcalico.org/podIP': '10.0.0.1'}}}
        cni = lambda api, address=address: api.patch(POD, address, TENANT, 'status', True)  # noqa: E731
        yield f'{name}_by_status', Probe(by_status, [POD], {"CNI's own": cni})
    evidence = {'metadata': {'annotations': {'stockade.dev/evidence': '2026-01-01T00-00-00Z'}}}
    yield 'evidence_by_tenant', patched(POD, evidence, agent=AGENT)
    crowd = {**POD, 'metadata': {**POD['metadata'], 'labels': {**POD['metadata']['labels'], **{f'stockade.dev/l{n}': 'x' for n in range(3000)}}}}
    most = {**POD, 'metadata': {**POD['metadata'], 'name': 'most', 'labels': {**POD['metadata']['labels'], **{
        f'stockade.dev/l{n}': 'x' * 63 for n in range(60)}}}}
    yield 'too_many_to_compare', Probe(lambda api: api.create(crowd, TENANT, True), [most], {
        'kubelet of a pod with as many as may be': lambda api: api.patch(most, {'status': {'phase': 'Running'}}, KUBELET, 'status', True)})
    # A binding's name is its pod's, its path below the pod.
    def by_pod(api, **metadata):
        return api.call('POST', '/api/v1/namespaces/sb/pods/p/binding?dryRun=All', binding(**metadata), TENANT)

    plain = {'plain binding': by_pod}
    yield 'label_by_binding', Probe(lambda api: by_pod(api, labels={'stockade.dev/session': 's2'}), [POD], plain)
    yield 'annotation_by_binding', Probe(lambda api: by_pod(api, annotations={'stockade.dev/policy': 'open'}), [POD], plain)


def bound_elsewhere():
    # The server sets no node of a pod that has one: a dry run binds nothing, so it stays free.
    by = lambda path: lambda api, group: api.call('POST', f'{path}?dryRun=All', binding(), group)  # noqa: E731
    for name, ask in (('by_pod', by('/api/v1/namespaces/sb/pods/p/binding')), ('by_binding', by('/api/v1/namespaces/sb/bindings'))):
        yield name, Probe(lambda api, ask=ask: ask(api, TENANT), [POD], {'scheduler': lambda api, ask=ask: ask(api, CONTROLLERS)})


def excused_plugin():
    excuse = {'tolerate-missing-plugins.stockade.dev/pod': 'true'}
    pod = {**POD, 'metadata': {'name': 'p', 'namespace': 'plain'}}
    yield 'by_update', patched(pod, {'metadata': {'annotations': excuse}})
    yield 'by_status', Probe(lambda api: api.patch(pod, {'metadata': {'annotations': excuse}}, TENANT, 'status', True), [pod])
    body = {**binding(annotations=excuse), 'metadata': {'name': 'p', 'namespace': 'plain', 'annotations': excuse}}
    yield 'by_binding', Probe(lambda api: api.call('POST', '/api/v1/namespaces/plain/pods/p/binding?dryRun=All', body, TENANT), [pod])


HARD = {'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True, 'capabilities': {'drop': ['ALL']}}
# What a debugger brings while the glass is open: folder -> its container's fields, one reason each.
DEBUGGERS = {
    'hardening-tool': {'securityContext': {**HARD, 'allowPrivilegeEscalation': True}},
    'hardening-agent': {'securityContext': {**HARD, 'capabilities': {'drop': ['ALL'], 'add': ['SYS_PTRACE']}}},
    'seccomp': {'securityContext': {'seccompProfile': {'type': 'Unconfined'}}},
    'pinned-images': {'image': 'busybox:latest'},
    'forbidden-mounts': {'volumeMounts': [{'name': 'out', 'mountPath': '/root', 'readOnly': True}]},
    'no-token': {'env': [{'name': 'K', 'valueFrom': {'secretKeyRef': {'name': 'k', 'key': 'k'}}}]},
}


def debugged_pods():
    image = 'registry.example/debug@sha256:' + '0' * 64
    for folder, fields in DEBUGGERS.items():
        # Of no-token's a pod of agents: two of its rules refuse a tool the secret.
        pod = [one for one in policies.load(folder, 'good.yaml') if folder != 'no-token' or one['metadata']['namespace'] == 'ag'][0]
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/ephemeralcontainers?dryRun=All"

        def ask(api, fields, path=path):
            change = {'spec': {'ephemeralContainers': [{'name': 'd', 'image': image, 'securityContext': HARD, **fields}]}}
            return api.call('PATCH', path, change, TENANT, 'application/strategic-merge-patch+json')

        hardened = {'a hardened one': lambda api, ask=ask: ask(api, {})}
        yield folder, 'debugger', Probe(lambda api, ask=ask, fields=fields: ask(api, fields), [pod], hardened)


def network_policy(name='stockade-default-deny', **spec):
    return {'apiVersion': 'networking.k8s.io/v1', 'kind': 'NetworkPolicy', 'metadata': {'name': name, 'namespace': 'sb'},
            'spec': {'podSelector': {}, 'policyTypes': ['Ingress', 'Egress'], **spec}}


def opened_networks():
    closed, way_out = network_policy(), {'spec': {'egress': [{}]}}
    yield 'network', 'default_taken_away', Probe(lambda api: api.delete(closed, TENANT, True), [closed], {
        'operators': lambda api: api.delete(closed, OPERATORS, True), "the namespace's end": lambda api: api.delete(closed, CONTROLLERS, True)})
    yield 'network', 'default_for_some', patched(closed, {'spec': {'podSelector': {'matchLabels': {'a': 'b'}}}})
    other = network_policy('other')
    yield 'network', 'opened', patched(other, way_out, operators=OPERATORS)
    cilium = {**network_policy('c'), 'apiVersion': 'cilium.io/v2', 'kind': 'CiliumNetworkPolicy'}
    yield 'network', 'other_kind', Probe(lambda api: api.create(cilium, TENANT, True), (), {
        'operators': lambda api: api.create(cilium, OPERATORS, True)})
    yield 'network', 'other_kind_deleted', Probe(lambda api: api.delete(cilium, TENANT, True), [cilium])
    pod = lambda api: api.create(POD, TENANT, True)  # noqa: E731
    for name, weak in (('for_some', network_policy(podSelector={'matchLabels': {'a': 'b'}})), ('one_way', network_policy(policyTypes=['Ingress'])),
                       ('with_a_hole', network_policy(egress=[{}]))):
        yield 'network-default', name, Probe(pod, [weak])


def closed_namespace(api):
    """A pod is refused where the default NetworkPolicy is not, and admitted from when it is there."""
    with bound(api, in_force('network-default')):
        if not refused_by(api.create(POD, TENANT, True), 'network-default'):
            yield 'a pod is admitted without it'
        closed = network_policy()
        api.must(api.create(closed))
        try:
            api.until(lambda: api.create(POD, TENANT, True).status == 201, 'a pod is admitted with it')
        finally:
            api.must(api.delete(closed))


def guarded_namespaces():
    sandbox = {'stockade.dev/sandbox': 'tool'}
    hour, short = str(int(time.time()) + 7200), str(int(time.time()) + 1800)
    past = str(int(time.time()) - 60)
    n1 = namespace('guarded-1', **sandbox)
    yield 'sandbox_label_taken_away', patched(n1, label('stockade.dev/sandbox', None), operators=OPERATORS)
    n2 = namespace('guarded-2', **sandbox)
    yield 'sandbox_label_changed', patched(n2, label('stockade.dev/sandbox', 'agent'), operators=OPERATORS)
    n3 = namespace('guarded-3', **sandbox)
    by_status = lambda api: api.patch(n3, label('stockade.dev/sandbox', None), TENANT, 'status', True)  # noqa: E731
    yield 'sandbox_label_by_status', Probe(by_status, [n3])
    # Made before the policies were: no namespace is given an empty label under them.
    n9 = namespace('guarded-9', **{'stockade.dev/sandbox': ''})
    yield 'empty_label_taken_away', patched(n9, label('stockade.dev/sandbox', None), operators=OPERATORS)
    n4 = namespace('guarded-4', **sandbox)
    yield 'glass_by_tenant', patched(n4, label('stockade.dev/break-glass', short), operators=OPERATORS, glass=GLASS)
    for number, (name, value) in enumerate((('glass_for_two_hours', hour), ('glass_of_the_past', past), ('glass_for_good', 'true')), 5):
        resource = namespace(f'guarded-{number}', **sandbox)
        change = label('stockade.dev/break-glass', value)
        ask = lambda api, resource=resource, change=change: api.patch(resource, change, OPERATORS, None, True)  # noqa: E731
        yield name, Probe(ask, [resource])
    n8 = namespace('guarded-8', **sandbox, **{'pod-security.kubernetes.io/enforce': 'restricted'})
    yield 'pod_security_lowered', patched(n8, label('pod-security.kubernetes.io/enforce', 'privileged'), operators=OPERATORS)


def entered_pods():
    pod = '/api/v1/namespaces/sb/pods/p'
    yield 'exec', connection(f'{pod}/exec?command=sh&stdout=true')
    yield 'exec_by_operators', connection(f'{pod}/exec?command=sh&stdout=true', group=OPERATORS)
    yield 'attach', connection(f'{pod}/attach?stdout=true')
    yield 'portforward', connection(f'{pod}/portforward?ports=80')
    yield 'proxy', connection(f'{pod}/proxy/', 'GET')
    yield 'service_proxy', connection('/api/v1/namespaces/sb/services/s/proxy/', 'GET')
    debug = {'spec': {'ephemeralContainers': [{'name': 'd', 'image': 'busybox'}]}}

    def ephemeral(api):
        path = f'{pod}/ephemeralcontainers?dryRun=All'
        return api.call('PATCH', path, debug, TENANT, 'application/strategic-merge-patch+json')

    yield 'ephemeral_container', Probe(ephemeral, [POD])


def agents_namespace(agent):
    """Ways into the agent's namespace through others whom it trusts: controllers, kubelets, its own service account."""
    template = {'metadata': {'labels': {'a': 'b'}}, 'spec': {'containers': [{'name': 'c', 'image': 'i'}]}}
    once = {'template': {'spec': {**template['spec'], 'restartPolicy': 'Never'}}}
    selected = {'selector': {'matchLabels': {'a': 'b'}}, 'template': template}
    specs = {'batch/v1 Job': once, 'batch/v1 CronJob': {'schedule': '* * * * *', 'jobTemplate': {'spec': once}}, 'apps/v1 ReplicaSet': selected,
             'apps/v1 StatefulSet': {**selected, 'serviceName': 's'}, 'v1 ReplicationController': {'selector': {'a': 'b'}, 'template': template},
             'v1 ResourceQuota': {'hard': {'pods': '0'}}, 'v1 LimitRange': {'limits': [{'type': 'Container', 'max': {'memory': '1Mi'}}]}}
    for what, spec in specs.items():
        version, kind = what.split()
        made = {'apiVersion': version, 'kind': kind, 'metadata': {'name': 'x', 'namespace': 'stockade'}, 'spec': spec}
        yield 'protect-namespace', f'made_{kind}', Probe(lambda api, made=made: api.create(made, TENANT, True), (), {
            'operators': lambda api, made=made: api.create(made, OPERATORS, True)})
    account = {'apiVersion': 'v1', 'kind': 'ServiceAccount', 'metadata': {'name': 'agent', 'namespace': 'stockade'}}
    request = {'apiVersion': 'authentication.k8s.io/v1', 'kind': 'TokenRequest', 'spec': {}}
    token = lambda api, group=TENANT: api.call('POST', '/api/v1/namespaces/stockade/serviceaccounts/agent/token', request, group)  # noqa: E731
    yield 'protect-namespace', 'token_of_agent', Probe(token, [account], {'kubelet': lambda api: token(api, KUBELET)})
    yield 'protect-namespace', 'agent_ended_by_status', Probe(
        lambda api: api.patch(agent, {'status': {'phase': 'Failed'}}, TENANT, 'status', True), [agent],
        {'kubelet': lambda api: api.patch(agent, {'status': {'phase': 'Running'}}, KUBELET, 'status', True)})
    sized = {**agent, 'spec': {'containers': [{'name': 'c', 'image': 'i', 'resources': {'limits': {'memory': '1Gi'}}}]}}
    small = {'spec': {'containers': [{'name': 'c', 'resources': {'limits': {'memory': '2Mi'}, 'requests': {'memory': '2Mi'}}}]}}
    resize = '/api/v1/namespaces/stockade/pods/a/resize?dryRun=All'
    yield 'protect-namespace', 'agent_starved', Probe(
        lambda api: api.call('PATCH', resize, small, TENANT, 'application/strategic-merge-patch+json'), [sized])


def protected_objects():
    role = {'apiVersion': 'rbac.authorization.k8s.io/v1', 'kind': 'ClusterRole', 'metadata': {'name': 'stockade-x', 'labels': PART_OF}, 'rules': []}
    yield 'protect-cluster', 'role', patched(role, {'rules': [{'apiGroups': [''], 'resources': ['pods'], 'verbs': ['get']}]}, operators=OPERATORS)
    yield 'protect-cluster', 'label_taken_away', patched(role, label('app.kubernetes.io/part-of', None), operators=OPERATORS)
    yield 'protect-cluster', 'deleted', Probe(lambda api: api.delete(role, TENANT, True), [role], {
        'operators': lambda api: api.delete(role, OPERATORS, True)})
    own = {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'stockade'}}
    yield 'protect-cluster', 'namespace_deleted', Probe(lambda api: api.delete(own, TENANT, True))
    settings = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'c', 'namespace': 'stockade'}}
    yield 'protect-namespace', 'settings_deleted', Probe(lambda api: api.delete(settings, TENANT, True), [settings], {
        'operators': lambda api: api.delete(settings, OPERATORS, True),
        'the agent': lambda api: api.patch(settings, {'data': {'a': 'b'}}, AGENT, None, True)})
    agent = {**POD, 'metadata': {'name': 'a', 'namespace': 'stockade'}}
    yield 'protect-namespace', 'agent_deleted', Probe(lambda api: api.delete(agent, TENANT, True), [agent], {
        'kubelet': lambda api: api.delete(agent, KUBELET, True)})
    exec_path = '/api/v1/namespaces/stockade/pods/a/exec?command=sh&stdout=true'
    yield 'protect-namespace', 'agent_entered', Probe(lambda api: api.call('POST', exec_path, None, TENANT), [agent])
    yield from agents_namespace(agent)
    eviction = {'apiVersion': 'policy/v1', 'kind': 'Eviction', 'metadata': {'name': 'a', 'namespace': 'stockade'}}
    evict = lambda api: api.call('POST', '/api/v1/namespaces/stockade/pods/a/eviction?dryRun=All', eviction, TENANT)  # noqa: E731
    yield 'protect-namespace', 'agent_evicted', Probe(evict, [agent])
    node = {'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': 'node-1'}, 'spec': {'taints': [
        {'key': 'stockade.dev/not-attested', 'effect': 'NoSchedule'}]}}
    yield 'protect-nodes', 'taint_lifted', patched(node, {'spec': {'taints': None}}, agent=AGENT)
    weak = {'spec': {'taints': [{'key': 'stockade.dev/not-attested', 'effect': 'PreferNoSchedule'}]}}
    yield 'protect-nodes', 'taint_made_a_wish', patched(node, weak, operators=OPERATORS)
    hole = {'apiVersion': 'policies.kyverno.io/v1', 'kind': 'PolicyException', 'metadata': {'name': 'hole', 'namespace': 'plain'},
            'spec': {'policyRefs': [{'name': 'stockade-seccomp', 'kind': 'ValidatingPolicy'}]}}
    yield 'protect-policies', 'exception', Probe(lambda api: api.create(hole, TENANT, True), (), {
        'operators': lambda api: api.create(hole, OPERATORS, True)})
    yield 'node-proxy', 'tenant', connection('/api/v1/nodes/node-1/proxy/pods', 'GET', operators=OPERATORS)


def probes():
    """[(folder, name, Probe)]"""
    found = [('labels', name, probe) for name, probe in frozen_labels()]
    found += [('namespace-guard', name, probe) for name, probe in guarded_namespaces()]
    found += [('exec-ban', name, probe) for name, probe in entered_pods()]
    found += [('runtime-class', f'bound_{name}', probe) for name, probe in bound_elsewhere()]
    found += [('plugin-required', f'excused_{name}', probe) for name, probe in excused_plugin()]
    return found + list(debugged_pods()) + list(opened_networks()) + list(protected_objects())


def use_break_glass(api):
    """exec is refused, passes while the label is there, is refused again without it. The caller looks into the audit log."""
    path = '/api/v1/namespaces/sb/pods/p/exec?command=sh&stdout=true'
    sandbox = {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'sb'}}
    ask = lambda: refused_by(api.call('POST', path, None, OPERATORS), 'exec-ban')  # noqa: E731
    api.must(api.create(POD))
    try:
        with bound(api, in_force('exec-ban')):
            if not ask():
                yield 'exec is not refused'
            try:
                api.must(api.patch(sandbox, label('stockade.dev/break-glass', str(int(time.time()) + 600))))
                api.until(lambda: not ask(), 'exec passes under break-glass')
            finally:
                api.must(api.patch(sandbox, label('stockade.dev/break-glass', None)))
            api.until(ask, 'exec is refused again')
    finally:
        api.must(api.delete(POD))
