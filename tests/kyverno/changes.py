"""Changes and connections that only a real API server can be asked for: one probe each, refused by the twin of its folder."""

import time

from twins import bound, in_force, refused_by

POD = {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'p', 'namespace': 'sb', 'labels': {
    'stockade.dev/session': 's1', 'stockade.dev/tool': 't', 'stockade.dev/tool-class': 'standard',
    'stockade.dev/trace': '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'}},
       'spec': {'containers': [{'name': 't', 'image': 'registry.example/tool:1'}]}}
OPERATORS, GLASS, TENANT = 'stockade:operators', 'stockade:break-glass', 'tenant'
# Groups of ordinary users; each may do everything as far as RBAC goes.
GROUPS = (OPERATORS, GLASS, TENANT, 'system:serviceaccounts:stockade', 'system:nodes')
PART_OF = {'app.kubernetes.io/part-of': 'stockade'}


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
    # A binding's name is its pod's, its path below the pod.
    def by_pod(api, **metadata):
        return api.call('POST', '/api/v1/namespaces/sb/pods/p/binding?dryRun=All', binding(**metadata), TENANT)

    plain = {'plain binding': by_pod}
    yield 'label_by_binding', Probe(lambda api: by_pod(api, labels={'stockade.dev/session': 's2'}), [POD], plain)
    yield 'annotation_by_binding', Probe(lambda api: by_pod(api, annotations={'stockade.dev/policy': 'open'}), [POD], plain)


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
    n4 = namespace('guarded-4', **sandbox)
    yield 'glass_by_tenant', patched(n4, label('stockade.dev/break-glass', short), operators=OPERATORS, glass=GLASS)
    for number, (name, value) in enumerate((('glass_for_two_hours', hour), ('glass_of_the_past', past), ('glass_for_good', 'true')), 5):
        resource = namespace(f'guarded-{number}', **sandbox)
        ask = lambda api, resource=resource, value=value: api.patch(resource, label('stockade.dev/break-glass', value), OPERATORS, None, True)  # noqa: E731
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
        'the agent': lambda api: api.patch(settings, {'data': {'a': 'b'}}, 'system:serviceaccounts:stockade', None, True)})
    agent = {**POD, 'metadata': {'name': 'a', 'namespace': 'stockade'}}
    yield 'protect-namespace', 'agent_deleted', Probe(lambda api: api.delete(agent, TENANT, True), [agent], {
        'kubelet': lambda api: api.delete(agent, 'system:nodes', True)})
    exec_path = '/api/v1/namespaces/stockade/pods/a/exec?command=sh&stdout=true'
    yield 'protect-namespace', 'agent_entered', Probe(lambda api: api.call('POST', exec_path, None, TENANT), [agent])
    eviction = {'apiVersion': 'policy/v1', 'kind': 'Eviction', 'metadata': {'name': 'a', 'namespace': 'stockade'}}
    evict = lambda api: api.call('POST', '/api/v1/namespaces/stockade/pods/a/eviction?dryRun=All', eviction, TENANT)  # noqa: E731
    yield 'protect-namespace', 'agent_evicted', Probe(evict, [agent])
    node = {'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': 'node-1'}, 'spec': {'taints': [
        {'key': 'stockade.dev/not-attested', 'effect': 'NoSchedule'}]}}
    yield 'protect-nodes', 'taint_lifted', patched(node, {'spec': {'taints': None}}, agent='system:serviceaccounts:stockade')
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
    return found + list(protected_objects())


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
