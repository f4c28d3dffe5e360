"""The policies of kyverno/, and what they say of resources, asked of the real CLI."""

import os
import tempfile

import gate
import yaml

ROOT = os.environ.get('STOCKADE_SOURCE_DIR') or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
POLICIES = os.path.join(ROOT, 'kyverno')
FLAG_OF_KIND = {'ValidatingPolicy': 'isValidatingPolicy', 'ValidatingAdmissionPolicy': 'isValidatingAdmissionPolicy'}

# Folders without a test of the CLI: it simulates neither CONNECT nor an UPDATE that changes something, and knows no kinds of others'
# definitions. Only an API server can show them.
SERVER_ONLY = {'exec-ban', 'node-proxy', 'protect-cluster', 'protect-nodes', 'protect-policies'}
# Policies that make or delete instead of judging: tests/kyverno/makers_test.py.
MAKERS = {'network-default': 'GeneratingPolicy', 'leftovers': 'DeletingPolicy'}
# Validations that judge a change, or who makes it, and so can be shown by an API server alone.
CHANGES = {
    'labels and annotations of stockade.dev do not change',
    'only stockade:operators take the label stockade.dev/sandbox away or change it',
    'only stockade:operators change the pod-security labels of a sandbox namespace',
    'only stockade:operators and stockade:break-glass open the glass',
    'stockade.dev/break-glass is the second since 1970 at which it expires: 10 digits',
    'break-glass expires within the hour',
    'only stockade:operators take stockade-default-deny away',
    # The CLI knows none of those kinds.
    'NetworkPolicies of Cilium and Calico are written by stockade:operators',
}


def all_folders():
    return sorted(name for name in os.listdir(POLICIES) if os.path.isdir(os.path.join(POLICIES, name)))


def folders():
    """Those of policies that judge."""
    return [name for name in all_folders() if name not in MAKERS]


def load(folder, name):
    return gate.documents(os.path.join(POLICIES, folder, name))


def load_if_there(folder, name):
    return load(folder, name) if os.path.exists(os.path.join(POLICIES, folder, name)) else []


def policy(folder):
    return load(folder, 'policy.yaml')[0]


def twins(folder):
    """The native policies of a folder; the first is the twin of policy.yaml."""
    return load_if_there(folder, 'twin.yaml')


def bindings(folder):
    return load_if_there(folder, 'binding.yaml')


def values(namespaces):
    metadata = [{'name': name, 'labels': labels} for name, labels in namespaces.items()]
    return {'apiVersion': 'cli.kyverno.io/v1alpha1', 'kind': 'Values', 'metadata': {'name': 'values'}, 'namespaceSelector': metadata,
            'namespaces': [{'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': one} for one in metadata]}


def write_test(scratch, policy_documents, resources, userinfo, namespaces):
    """A test folder in which every policy that judges is expected to refuse every resource. Returns the expectations."""
    kinds = {}
    for resource in resources:
        kinds.setdefault(resource['kind'], []).append(gate.name_of(resource))
    results = [{FLAG_OF_KIND[document['kind']]: True, 'policy': document['metadata']['name'], 'kind': kind, 'resources': names,
                'result': 'fail'} for document in policy_documents for kind, names in kinds.items()]
    test = {'apiVersion': 'cli.kyverno.io/v1alpha1', 'kind': 'Test', 'metadata': {'name': 'generated'}, 'policies': ['policies.yaml'],
            'resources': ['resources.yaml'], 'variables': 'values.yaml', 'results': results}
    parts = {'policies.yaml': policy_documents, 'resources.yaml': resources, gate.TEST_FILE: [test],
             'values.yaml': [values(namespaces)] if namespaces else gate.documents(os.path.join(POLICIES, 'values.yaml'))}
    if userinfo:
        test['userinfo'] = 'userinfo.yaml'
        parts['userinfo.yaml'] = [userinfo]
    for name, documents in parts.items():
        with open(os.path.join(scratch, name), 'w', encoding='utf-8') as file:
            yaml.safe_dump_all(documents, file, sort_keys=False)
    return [gate.Expectation(result['policy'], result['kind'], name) for result in results for name in result['resources']]


def judge(policy_documents, resources, userinfo=None, namespaces=None):
    """{Expectation: 'refused', 'passes', 'not selected' or what the CLI says instead}, from one run of the CLI.

    namespaces: {name: labels} in the place of those of kyverno/values.yaml.
    """
    with tempfile.TemporaryDirectory(prefix='stockade-kyverno.') as scratch:
        expectations = write_test(scratch, policy_documents, resources, userinfo, namespaces)
        rows, _, output = gate.run_cli(scratch)
    # The CLI has three words for what a policy does not look at: by a selector, by its resource rules, by a match condition.
    words = {'Ok': 'refused', 'Want fail, got pass': 'passes', 'Excluded': 'not selected', 'Not found': 'not selected',
             'Want fail, got skip': 'not selected'}
    said = {gate.Expectation(row.policy, row.kind, row.resource): words.get(row.reason, row.reason) for row in rows}
    missing = [expectation for expectation in expectations if expectation not in said]
    if missing or not said:
        raise RuntimeError(f'no row for {missing[:3]} ({len(missing)} of {len(expectations)}):\n{output[-3000:]}')
    return said
