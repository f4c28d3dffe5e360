#!/usr/bin/python3
"""The native twins alone, without Kyverno, on a real API server: what they refuse, and that it is they who refuse it.

Each probe is asked three times: before the twin is bound (it must be admitted: the control), while it is bound, and after.
"""

import copy
import os
import sys
from contextlib import contextmanager, nullcontext

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases  # noqa: E402
import changes  # noqa: E402
import gate  # noqa: E402
import manifests_test  # noqa: E402
import policies  # noqa: E402
import server  # noqa: E402
import tools  # noqa: E402
from twins import bound, in_force, keep_reading, refused_by, settle  # noqa: E402

NAMESPACES = {'sb': {'stockade.dev/sandbox': 'tool'}, 'ag': {'stockade.dev/sandbox': 'agent'}, 'plain': {}, 'stockade': {}}
MANIFESTS = os.path.join(policies.ROOT, 'deploy', 'kubernetes')


def namespace(name, labels):
    return {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': name, 'labels': labels}}


def prepare(api):
    """Namespaces, runtimes, Kyverno's own kinds, and ordinary users who may do everything, so that only admission is left to refuse."""
    for name, labels in NAMESPACES.items():
        api.must(api.create(namespace(name, labels)))
    for name in ('runtime-classes', 'namespaces', 'network-policies'):
        for document in gate.documents(os.path.join(MANIFESTS, name + '.yaml')):
            api.must(api.create(document))
    api.must(api.create(changes.CILIUM))
    keep_reading(api, 'networking.k8s.io/v1', 'NetworkPolicy')
    folder = os.path.join(tools.module_dir('kyverno'), 'crds')
    for name in sorted(os.listdir(folder)):
        for document in gate.documents(os.path.join(folder, name)):
            api.must(api.create(document))
    rules = [{'apiGroups': ['*'], 'resources': ['*'], 'verbs': ['*']}, {'nonResourceURLs': ['*'], 'verbs': ['*']}]
    role = {'apiVersion': 'rbac.authorization.k8s.io/v1', 'kind': 'ClusterRole', 'metadata': {'name': 'everything'}, 'rules': rules}
    api.must(api.create(role))
    subjects = [{'kind': 'Group', 'apiGroup': 'rbac.authorization.k8s.io', 'name': name} for name in changes.GROUPS]
    api.must(api.create({'apiVersion': 'rbac.authorization.k8s.io/v1', 'kind': 'ClusterRoleBinding', 'metadata': {'name': 'everything'},
                         'roleRef': {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'ClusterRole', 'name': 'everything'},
                         'subjects': subjects}))
    ours = [('policies.kyverno.io/v1', kind) for kind in ('PolicyException', 'ValidatingPolicy', 'GeneratingPolicy', 'DeletingPolicy')]
    for version, kind in ours + [('cilium.io/v2', 'CiliumNetworkPolicy')]:
        probe = {'apiVersion': version, 'kind': kind, 'metadata': {'name': 'x', 'namespace': 'plain'}}
        api.until(lambda probe=probe: api.create(probe, dry_run=True).status != 404, f'{kind} is served')


def ships(api, folder):
    """The server's own schema and CEL compiler take policy and twin, every field of them."""
    yield from (f"{document['metadata']['name']}: {answer.status} {answer.message}"
                for document in [policies.policy(folder), *in_force(folder)]
                for answer in [api.create(document, dry_run=True)] if answer.status != 201)


def refuses_the_bad(api, folder):
    """Good and bad resources without the twin, under it and without its binding; the real CLI says the same of each."""
    good = policies.load_if_there(folder, 'good.yaml')
    bad = policies.load(folder, 'bad.yaml')
    with without_runtime_classes(api) if folder == 'runtime-pool' else nullcontext():  # some have the names of those that are there
        yield from compare(api, good + bad, 'before the twin is there', lambda document: False, folder)
        with bound(api, in_force(folder)):
            yield from compare(api, good + bad, 'under the twin', lambda document: document in bad, folder)
            yield from cli_disagrees(api, folder, good + bad)
            for binding in policies.bindings(folder):
                api.must(api.delete(binding))
            settle(api)
            yield from compare(api, good + bad, 'without the binding', lambda document: False, folder)
            for binding in policies.bindings(folder):
                api.must(api.create(binding))


@contextmanager
def without_runtime_classes(api):
    documents = gate.documents(os.path.join(MANIFESTS, 'runtime-classes.yaml'))
    for document in documents:
        api.must(api.delete(document))
    try:
        yield
    finally:
        for document in documents:
            api.must(api.create(document))


def compare(api, documents, when, is_refused, folder):
    for document in documents:
        answer = api.create(document, dry_run=True)
        right = refused_by(answer, folder) if is_refused(document) else answer.status == 201
        if not right:
            yield f'{when}: {document["kind"]} {gate.name_of(document)}: {answer.status} {answer.message[:300]}'


def cli_disagrees(api, folder, documents):
    """The words of the CLI for policy and twin against the server's answer under the twin."""
    test = policies.load(folder, gate.TEST_FILE)[0]
    userinfo = policies.load(folder, test['userinfo'])[0] if 'userinfo' in test else None
    said = policies.judge([policies.policy(folder), policies.twins(folder)[0]], documents, userinfo)
    for document in documents:
        server_refuses = refused_by(api.create(document, dry_run=True), folder)
        for key, word in said.items():
            if (key.kind, key.resource) == (document['kind'], gate.name_of(document)) and (word == 'refused') != server_refuses:
                yield f"{key.policy} of {key.kind} {key.resource}: the CLI says {word}, the server {'refuses' if server_refuses else 'admits'}"


def weaken(api, twin, refusal):
    """Lets the validation that is the reason of a refusal say `true`; yields its message."""
    for document in twin:
        validations = copy.deepcopy(document['spec'].get('validations', []))
        blamed = [validation for validation in validations if validation['message'] in refusal]
        for validation in blamed:
            validation['expression'] = 'true'
            yield validation['message']
        if blamed:
            api.must(api.patch(document, {'spec': {'validations': validations}}))


def change_is_refused(api, folder, name, probe):
    """A change is admitted without the twin, refused under it, and admitted again where the validation that refuses it says `true`."""
    twin = in_force(folder)
    probe.prepare(api)
    try:
        if refused_by(probe.ask(api), folder):
            return [f'{name}: refused before the twin is there']
        with bound(api, twin):
            answer = probe.ask(api)
            if not refused_by(answer, folder):
                return [f'{name}: {answer.status} {answer.message[:300]}']
            problems = [f'{who}: {answer.status} {answer.message[:300]}' for who, answer in probe.allowed(api) if refused_by(answer, folder)]
            weakened = list(weaken(api, twin, answer.message))
            if len(weakened) != 1:
                return problems + [f'{name}: {len(weakened)} validations say: {answer.message}']
            settle(api)
            answer = probe.ask(api)
            if refused_by(answer, folder):
                problems.append(f'{name}: with `true` in its place still {answer.message[:300]}')
        return problems
    finally:
        probe.clean(api)


@contextmanager
def everything(api):
    """All twins in force, as they are installed."""
    with bound(api, [document for folder in policies.all_folders() for document in in_force(folder)]):
        yield


def manifests_are_admitted(api):
    """By all twins together and by Pod Security, as they stand; and of every weakening that the tests make of them, none is."""
    with everything(api):
        for name in manifests_test.PODS:
            manifest = manifests_test.manifest(name)
            answer = api.create(manifest, dry_run=True)
            if answer.status != 201:
                yield f'{name}: {answer.status} {answer.message}'
            if any('would violate' in line for line in (answer.body or {}).get('warnings', [])):
                yield f'{name}: {answer.body}'
            weakenings = manifests_test.weakenings(manifest)
            by_twin = 0
            for what, weaker in weakenings:
                answer = api.create(weaker, dry_run=True)
                by_twin += refused_by(answer, '')
                # The server fills in what its RuntimeClass says, which makes the pod whole again.
                filled_in = 'nodeSelector' in what and (answer.body or {}).get('spec', {}).get('nodeSelector') == manifest['spec'].get('nodeSelector')
                if answer.status < 400 and not filled_in:
                    yield f'{name} {what}: {answer.status}'
            print(f'    {name}: {len(weakenings)} weakenings, {by_twin} refused by twins, the others by Kubernetes itself')


def break_glass_is_audited(api):
    found = list(changes.use_break_glass(api))
    key = 'stockade-exec-ban-native/break-glass'
    api.until(lambda: any(key in (line.get('annotations') or {}) for line in api.audit_lines()), 'the audit log has the use of break-glass')
    return found


def all_cases(api):
    found = {}
    for folder in policies.all_folders():
        found[f'Ships/{folder}'] = lambda folder=folder: ships(api, folder)
    for folder in policies.folders():
        if folder not in policies.SERVER_ONLY:
            found[f'Refuses/{folder}'] = lambda folder=folder: refuses_the_bad(api, folder)
    for folder, name, probe in changes.probes():
        found[f'Change/{folder}/{name}'] = lambda folder=folder, name=name, probe=probe: change_is_refused(api, folder, name, probe)
    found['ManifestsAreAdmitted'] = lambda: manifests_are_admitted(api)
    found['NamespaceIsClosed'] = lambda: changes.closed_namespace(api)
    found['BreakGlassIsAudited'] = lambda: break_glass_is_audited(api)
    return found


def main():
    with server.Server() as api:
        prepare(api)
        return cases.run(all_cases(api))


if __name__ == '__main__':
    sys.exit(main())
