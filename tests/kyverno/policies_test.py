#!/usr/bin/python3
"""Every policy of kyverno/ on its good and bad resources, through the gate; and each of its expressions is needed."""

import copy
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases  # noqa: E402
import gate  # noqa: E402
import policies  # noqa: E402

# What a policy and its twin share. Where they differ, the twin's comment says why.
SHARED = ('matchConditions', 'variables', 'validations')
DIFFERENT = {
    ('exec-ban', 'validations'),  # no clock
    ('namespace-guard', 'validations'), ('namespace-guard', 'variables'),  # the time of the write in the place of the clock
}
# Rules that only the twin has: a webhook there would stop kubelets or the scheduler.
TWIN_RESOURCES = {
    'labels': {'pods/status'}, 'plugin-required': {'pods/status'}, 'namespace-guard': {'namespaces/status', 'namespaces/finalize'},
    'protect-namespace': {'serviceaccounts/token', 'pods/binding', 'bindings', 'pods/status', 'pods/resize', 'replicationcontrollers/scale',
                          'deployments/scale', 'replicasets/scale', 'statefulsets/scale'},
}


def resources_of(document):
    rules = document['spec']['matchConstraints']['resourceRules']
    return {(group, resource, operation) for rule in rules for group in rule['apiGroups'] for resource in rule['resources']
            for operation in rule['operations']}


def folder_is_whole(folder):
    policy, twin = policies.policy(folder), policies.twins(folder)[0]
    name = f'stockade-{folder}'
    if (policy['kind'], policy['apiVersion'], policy['metadata']['name']) != ('ValidatingPolicy', 'policies.kyverno.io/v1', name):
        yield f'policy.yaml is not the ValidatingPolicy {name} of policies.kyverno.io/v1'
    if policy['spec'].get('failurePolicy') != 'Fail' or 'Deny' not in policy['spec'].get('validationActions', []):
        yield 'policy.yaml does not fail closed'
    yield from twin_differences(folder, policy, twin)
    yield from bindings_are_open(folder)
    has_test = os.path.exists(os.path.join(policies.POLICIES, folder, gate.TEST_FILE))
    if has_test == (folder in policies.SERVER_ONLY):
        yield 'has a test of the CLI and is in SERVER_ONLY' if has_test else 'has no test'


def twin_differences(folder, policy, twin):
    for key in SHARED:
        same = policy['spec'].get(key) == twin['spec'].get(key)
        if same == ((folder, key) in DIFFERENT):
            yield f'{key} of policy and twin are {"the same, and listed as different" if same else "different"}'
    for key in ('namespaceSelector', 'objectSelector'):
        if policy['spec']['matchConstraints'].get(key) != twin['spec']['matchConstraints'].get(key):
            yield f'{key} of policy and twin are different'
    more = {resource for _, resource, _ in resources_of(twin) - resources_of(policy)}
    if more != TWIN_RESOURCES.get(folder, set()) or not resources_of(policy) <= resources_of(twin):
        yield f'resources of policy and twin are different: {sorted(more)}'


def bindings_are_open(folder):
    """A twin without a binding that denies, or with one that selects, refuses less than it says."""
    bindings = {document['spec']['policyName']: document for document in policies.bindings(folder)}
    for native in policies.twins(folder):
        binding = bindings.get(native['metadata']['name'])
        if native['spec'].get('failurePolicy') != 'Fail':
            yield f"{native['metadata']['name']} does not fail closed"
        if not binding or 'Deny' not in binding['spec']['validationActions'] or 'matchResources' in binding['spec']:
            yield f"{native['metadata']['name']} is not bound, or not everywhere"


def mutants(document):
    """Copies of a policy, in each of which one validation says `true`: [(message, copy)]."""
    found = []
    for number, validation in enumerate(document['spec']['validations']):
        mutant = copy.deepcopy(document)
        mutant['metadata']['name'] += f'-m{number}'
        mutant['spec']['validations'][number]['expression'] = 'true'
        found.append((validation['message'], mutant))
    return found


def every_expression_is_needed(folder):
    """With any one expression replaced by `true`, a bad resource passes: the folder's test turns red."""
    bad = policies.load(folder, 'bad.yaml')
    test = policies.load(folder, gate.TEST_FILE)[0]
    userinfo = policies.load(folder, test['userinfo'])[0] if 'userinfo' in test else None
    changed = mutants(policies.policy(folder)) + mutants(policies.twins(folder)[0])
    said = policies.judge([mutant for _, mutant in changed], bad, userinfo)
    for message, mutant in changed:
        name = mutant['metadata']['name']
        red = [key for key, word in said.items() if key.policy == name and word != 'refused']
        if bool(red) == (message in policies.CHANGES):
            yield f'{name}: "{message}" ' + ('turns red, and is listed as a change' if red else 'can say true, and all stays green')


def shared_files_are_read():
    """A folder that is none would be left out of everything."""
    return [] if len(policies.folders()) >= len(policies.SERVER_ONLY) + 10 else ['the policies are not there']


def all_cases():
    found = {'Inventory': shared_files_are_read}
    for folder in policies.folders():
        found[f'Whole/{folder}'] = lambda folder=folder: folder_is_whole(folder)
        if folder not in policies.SERVER_ONLY:
            found[f'Test/{folder}'] = lambda folder=folder: gate.check(os.path.join(policies.POLICIES, folder))
            found[f'Needed/{folder}'] = lambda folder=folder: every_expression_is_needed(folder)
    return found


if __name__ == '__main__':
    sys.exit(cases.run(all_cases()))
