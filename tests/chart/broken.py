"""Policies that are wrong in one place each, with what both readers have to say of it."""

import copy
from collections import namedtuple

# change(document): makes a good one wrong. field: where the API server has to see it; words: of its message.
Case = namedtuple('Case', 'name change field words')

GOOD = {
    'apiVersion': 'stockade.dev/v1', 'kind': 'SandboxPolicy', 'metadata': {'name': 'good'},
    'spec': {
        'extends': ['base'], 'selector': {'matchLabels': {'tool': 'python'}}, 'mode': 'enforce', 'violation': 'kill-process',
        'exec': {'allow': ['/usr/bin/python3*'], 'libraries': ['/usr/lib/**'], 'deny': ['**/sh'], 'violation': 'kill-sandbox'},
        'files': {'read': ['/usr/**', '/a\\[b\\]'], 'write': ['/tmp/**'], 'deny': ['**/.ssh/**']},
        'network': {'allow': [{'cidr': '192.0.2.0/24', 'ports': [443, '8000-8100']}, {'name': '*.pypi.org', 'tls_name': 'strict'},
                              {'unix': '@x'}, {'cidr': '2001:db8::1'}],
                    'loopback': ['any'], 'host': [8080], 'bind': ['9000-9001'],
                    'uids': {'1000': [{'cidr': '10.0.0.0/8', 'ports': [1]}]}},
        'dns': {'mode': 'allowlist', 'resolvers': ['10.0.0.53', '2001:db8::53'], 'allow': ['pypi.org', '*.pypi.org', 'example.com'],
                'budget': {'zone': '256B', 'ranked': '4KiB', 'total': 'none'}, 'grants': {'example.com': '4KiB'}},
        'grants': ['ptrace'], 'entered': 'deny', 'record': {'exec': 'all', 'files': 'first', 'network': 'violations', 'dns': 'all'}},
    'tests': {'allow': [{'exec': '/usr/bin/python3.11'}, {'connect': '10.1.2.3:1', 'uid': 1000}], 'refuse': [{'read': '/etc/shadow'}]}}


def at(document, way):
    for step in way[:-1]:
        document = document[step]
    return document, way[-1]


def put(name, way, value, field, words):
    def change(document):
        place, key = at(document, way)
        place[key] = value
    return Case(name, change, field, words)


def drop(name, way, field, words):
    def change(document):
        place, key = at(document, way)
        del place[key]
    return Case(name, change, field, words)


SPEC = ('spec',)
ALLOW = ('spec', 'network', 'allow')
CASES = [
    put('unknown-key', ('spec', 'netwrok'), {}, 'spec.netwrok', 'unknown field'),
    put('unknown-key-deep', (*ALLOW, 0, 'port'), 1, 'spec.network.allow[0].port', 'unknown field'),
    put('unknown-mode', ('spec', 'mode'), 'audit', 'spec.mode', 'Unsupported value'),
    put('unknown-violation', ('spec', 'exec', 'violation'), 'kill', 'spec.exec.violation', 'Unsupported value'),
    put('unknown-grant', ('spec', 'grants'), ['all'], 'spec.grants[0]', 'Unsupported value'),
    put('unknown-record', ('spec', 'record', 'dns'), 'none', 'spec.record.dns', 'Unsupported value'),
    put('relative-path', ('spec', 'files', 'read'), ['etc/passwd'], 'spec.files.read[0]', 'should match'),
    put('brackets', ('spec', 'files', 'deny'), ['/etc/{passwd,shadow}'], 'spec.files.deny[0]', 'should match'),
    put('not-a-list', ('spec', 'exec', 'allow'), '/usr/bin/id', 'spec.exec.allow', 'must be of type array'),
    put('not-a-map', ('spec', 'files'), [], 'spec.files', 'must be of type object'),
    put('null-section', ('spec', 'network'), None, 'spec', 'network is null'),
    put('null-exec', ('spec', 'exec'), None, 'spec', 'exec is null'),
    put('null-files', ('spec', 'files'), None, 'spec', 'files is null'),
    put('null-dns', ('spec', 'dns'), None, 'spec', 'dns is null'),
    put('null-spec', SPEC, None, 'spec', 'Required value'),
    drop('no-spec', SPEC, 'spec', 'Required value'),
    put('port-0', (*ALLOW, 0, 'ports'), [0], 'spec.network.allow[0].ports[0]', 'greater than or equal to 1'),
    put('port-65536', ('spec', 'network', 'host'), [65536], 'spec.network.host[0]', 'less than or equal to 65535'),
    put('port-word', (*ALLOW, 0, 'ports'), ['https'], 'spec.network.allow[0].ports[0]', 'should match'),
    put('port-any-egress', (*ALLOW, 0, 'ports'), ['any'], 'spec.network.allow[0].ports[0]', 'should match'),
    put('ports-empty', (*ALLOW, 0, 'ports'), [], 'spec.network.allow[0].ports', 'should have at least 1 items'),
    put('rule-empty', (*ALLOW, 0), {}, 'spec.network.allow[0]', 'exactly one of cidr, name, unix'),
    put('rule-of-two', (*ALLOW, 0, 'name'), 'a.example', 'spec.network.allow[0]', 'exactly one of cidr, name, unix'),
    put('unix-with-ports', (*ALLOW, 2, 'ports'), [1], 'spec.network.allow[2]', 'unix and ports exclude each other'),
    put('unix-relative', (*ALLOW, 2, 'unix'), 'x.sock', 'spec.network.allow[2].unix', 'should match'),
    put('tls-without-name', (*ALLOW, 0, 'tls_name'), 'strict', 'spec.network.allow[0]', 'tls_name needs a name'),
    put('cidr-word', (*ALLOW, 0, 'cidr'), 'localhost', 'spec.network.allow[0].cidr', 'an address, or a prefix'),
    put('cidr-host-bits', (*ALLOW, 0, 'cidr'), '10.0.0.1/8', 'spec.network.allow[0].cidr', 'an address, or a prefix'),
    put('cidr-too-long', (*ALLOW, 0, 'cidr'), '10.0.0.0/33', 'spec.network.allow[0].cidr', 'an address, or a prefix'),
    put('name-upper-case', (*ALLOW, 1, 'name'), 'PyPI.org', 'spec.network.allow[1].name', 'should match'),
    put('uid-name', ('spec', 'network', 'uids'), {'root': []}, 'spec.network.uids', 'its keys match'),
    put('uid-rule-name', ('spec', 'network', 'uids', '1000', 0), {'name': 'a.example'}, 'spec.network.uids', 'Required value'),
    put('resolver-name', ('spec', 'dns', 'resolvers'), ['dns.example'], 'spec.dns.resolvers[0]', 'a resolver is an IP address'),
    put('budget-word', ('spec', 'dns', 'budget', 'zone'), 'much', 'spec.dns.budget.zone', 'should match'),
    put('budget-unit', ('spec', 'dns', 'budget', 'zone'), '4MB', 'spec.dns.budget.zone', 'should match'),
    put('budget-negative', ('spec', 'dns', 'budget', 'total'), -1, 'spec.dns.budget.total', 'greater than or equal to 0'),
    put('grant-of-tld', ('spec', 'dns', 'grants'), {'com': '4KiB'}, 'spec.dns.grants', 'at least two labels'),
    put('name-bad', ('metadata', 'name'), 'x' * 64, '', 'at most 63'),
    put('label-number', ('spec', 'selector', 'matchLabels'), {'a': []}, 'spec.selector.matchLabels', 'must be of type string'),
    put('selector-empty', ('spec', 'selector'), {}, 'spec.selector.matchLabels', 'Required value'),
    put('test-of-two', ('tests', 'allow', 0, 'read'), '/x', 'tests.allow[0]', 'exactly one of exec'),
    put('test-of-none', ('tests', 'refuse', 0), {'uid': 0}, 'tests.refuse[0]', 'exactly one of exec'),
]
# Both readers know these; a file may say them all the same, for there a null section is an empty one.
ONLY_OBJECTS = {'null-section', 'null-exec', 'null-files', 'null-dns', 'null-spec'}


def broken(case, kind='SandboxPolicy'):
    document = copy.deepcopy(GOOD)
    document['kind'] = kind
    case.change(document)
    return document
