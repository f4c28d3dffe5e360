#!/usr/bin/python3
"""What the policies on CONNECT and on others' kinds say, asked of the CLI on a request that it can simulate.

A copy of each policy looks at the creation of ConfigMaps in the place of its own requests; its selector, variables and expressions stay.
So this shows what they decide, and not that the requests come to them: that takes an API server.
"""

import copy
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases  # noqa: E402
import policies  # noqa: E402

ANY = [{'apiGroups': [''], 'apiVersions': ['v1'], 'operations': ['CREATE'], 'resources': ['configmaps']}]
SANDBOX, GLASS = 'stockade.dev/sandbox', 'stockade.dev/break-glass'


def transposed(folder):
    for document in [policies.policy(folder), policies.twins(folder)[0]]:
        copied = copy.deepcopy(document)
        copied['spec']['matchConstraints']['resourceRules'] = ANY
        # They ask for the old object, which a creation has not.
        copied['spec'].pop('matchConditions', None)
        yield copied


def config_map(namespace):
    return {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'c', 'namespace': namespace}}


def user(*groups):
    return {'apiVersion': 'cli.kyverno.io/v1alpha1', 'kind': 'UserInfo', 'metadata': {'name': 'u'},
            'userInfo': {'username': 'u', 'groups': list(groups)}}


def differences(folder, resources, wanted, userinfo=None, namespaces=None):
    """wanted: {namespace: (what Kyverno's form says, what the twin says)}"""
    said = policies.judge(list(transposed(folder)), resources, userinfo, namespaces)
    for key, word in said.items():
        expected = wanted[key.resource.split('/')[0]][key.policy.endswith('-native')]
        if word != expected:
            yield f'{key.policy} in {key.resource}: {word}, not {expected}'


def exec_ban():
    now = int(time.time())
    namespaces = {
        'closed': {SANDBOX: 'tool'}, 'misspelt': {SANDBOX: 'other'}, 'open': {SANDBOX: 'tool', GLASS: str(now + 3600)},
        'expired': {SANDBOX: 'tool', GLASS: str(now - 1)}, 'for-good': {SANDBOX: 'tool', GLASS: 'true'},
        'empty': {SANDBOX: 'agent', GLASS: ''}, 'longer': {SANDBOX: 'tool', GLASS: '99999999999'}, 'plain': {}}
    refused, passes, unseen = ('refused',) * 2, ('passes',) * 2, ('not selected',) * 2
    wanted = {'closed': refused, 'misspelt': refused, 'open': passes, 'for-good': refused, 'empty': refused, 'longer': refused, 'plain': unseen,
              # The twin has no clock.
              'expired': ('refused', 'passes')}
    return differences('exec-ban', [config_map(name) for name in namespaces], wanted, namespaces=namespaces)


def trusts(folder, groups):
    """Refuses cluster-admin and whoever comes without a group, lets the given groups pass."""
    where = 'stockade' if folder == 'protect-namespace' else 'plain'
    tenants = [user('system:masters', 'system:authenticated'), user('stockade:break-glass'), user('stockade:operators-x'), user()]
    for word, users in (('refused', tenants), ('passes', [user(group) for group in groups])):
        for one in users:
            for problem in differences(folder, [config_map(where)], {where: (word, word)}, one):
                yield f"{one['userInfo']['groups']}: {problem}"


CLUSTER = ['stockade:operators', 'system:serviceaccounts:stockade', 'system:serviceaccounts:kube-system', 'system:nodes']
CASES = {
    'exec-ban': exec_ban,
    'node-proxy': lambda: trusts('node-proxy', ['stockade:operators']),
    'protect-namespace': lambda: trusts('protect-namespace', CLUSTER),
    'protect-cluster': lambda: trusts('protect-cluster', CLUSTER),
    'protect-policies': lambda: trusts('protect-policies', CLUSTER),
}

if __name__ == '__main__':
    sys.exit(cases.run(CASES))
