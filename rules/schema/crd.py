#!/usr/bin/python3
"""Makes the CRDs of SandboxPolicy and ClusterSandboxPolicy from sandboxpolicy.schema.json, which a unit test holds to the parser's keys.

crd.py writes them into the chart, crd.py --check says whether those there are what it would write.

A structural schema has no $ref, no oneOf with types and no closed objects: what the first says of alternatives becomes CEL rules here, and
unknown keys are refused by strict field validation (kubectl's and Helm's default), else dropped by the API server with a warning.
"""

import json
import os
import sys

sys.dont_write_bytecode = True
import yaml  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(HERE, '..', '..', 'deploy', 'helm', 'stockade', 'files', 'crds')
GROUP = 'stockade.dev'

# Bounds for the lists whose items CEL looks at: the API server bounds a rule by its cost for the longest list there may be. They are far
# beyond what policies have; a file may be longer.
MAX_RULES = 1024
MAX_UIDS = 64
MAX_UID_RULES = 64
MAX_RESOLVERS = 16
MAX_GRANTS = 256
# Longer than any address with its prefix in text (INET6_ADDRSTRLEN is 46), and a host name with a star before it.
MAX_CIDR = 50
MAX_NAME = 255

SECTIONS = ('exec', 'files', 'network', 'dns')


def rule(expression, message):
    return {'rule': expression, 'message': message}


# By definition, or by definition and the path of properties below it: what the parser refuses beyond the JSON Schema.
RULES = {
    'spec': [rule(f'!has(self.{name}) || self.{name} != null',
                  f'{name} is null, which clients drop, and then nothing of it is refused: an empty section is {name}: {{}}')
             for name in SECTIONS],
    'networkRule': [rule('!has(self.tls_name) || has(self.name)', 'tls_name needs a name; addresses have none')],
    'cidr': [rule('isIP(self) || (isCIDR(self) && cidr(self).masked() == cidr(self))',
                  'an address, or a prefix without address bits beyond its length: 10.0.0.0/8, 2001:db8::/32')],
    'spec.dns.resolvers.items': [rule('isIP(self)', 'a resolver is an IP address, like 10.0.0.53')],
    'spec.dns.grants': [rule(r"self.all(zone, zone.matches('^[a-z0-9_-]+([.][a-z0-9_-]+)+$'))",
                             'a zone is a lower-case name of at least two labels, like example.com')],
}
# What is set beside what the JSON Schema says.
BOUNDS = {
    'cidr': {'maxLength': MAX_CIDR},
    'dnsName': {'maxLength': MAX_NAME},
    'spec.network.allow': {'maxItems': MAX_RULES},
    'spec.network.uids': {'maxProperties': MAX_UIDS},
    'spec.network.uids.*': {'maxItems': MAX_UID_RULES},
    'spec.dns.resolvers': {'maxItems': MAX_RESOLVERS},
    'spec.dns.resolvers.items': {'maxLength': MAX_CIDR},
    'spec.dns.grants': {'maxProperties': MAX_GRANTS},
    'policy.tests.allow': {'maxItems': MAX_RULES},
    'policy.tests.refuse': {'maxItems': MAX_RULES},
}
# Budgets are numbers of bytes, or words; ParseDnsBudget() is what reads them.
BUDGET = {'pattern': '^([0-9]{1,10}(B|KiB)?|none)$', 'minimum': 0, 'maximum': 1 << 30}


def int_or_string(schema, description=None):
    out = {'x-kubernetes-int-or-string': True, **schema}
    if description:
        out['description'] = description
    return out


class Maker:
    def __init__(self, schema):
        self.definitions = schema['definitions']

    def structural(self, node, where):
        """One node of the JSON Schema as the API server takes it. `where`: the definition, and the way below it."""
        out = {}
        if '$ref' in node:
            where = node['$ref'].rsplit('/', 1)[1]
            node = {**self.definitions[where], **{key: value for key, value in node.items() if key != '$ref'}}
        if where in ('port', 'portOrAny'):
            return self.port(where)
        kinds = node.get('type', [])
        kinds = [kinds] if isinstance(kinds, str) else list(kinds)
        if 'null' in kinds:
            kinds.remove('null')
            out['nullable'] = True
        if sorted(kinds) == ['integer', 'string']:
            return int_or_string(BUDGET, node.get('description'))
        if len(kinds) == 3:
            kinds = ['string']  # values of labels: Kubernetes has them as texts alone
            out['maxLength'] = 63
        if not kinds and 'enum' in node:
            kinds = ['string']
        if len(kinds) != 1:
            raise SystemExit(f'{where}: no single type: {node}')
        out['type'] = kinds[0]
        for key in ('description', 'enum', 'pattern', 'minimum', 'maximum', 'maxLength', 'minItems', 'required'):
            if key in node:
                out[key] = node[key]
        if out.get('maximum', 0) > 0x7fffffff:
            out['format'] = 'int64'
        self.below(node, where, out)
        rules = self.alternatives(node) + RULES.get(where, [])
        if rules:
            out['x-kubernetes-validations'] = rules
        out.update(BOUNDS.get(where, {}))
        return out

    def below(self, node, where, out):
        if 'properties' in node:
            out['properties'] = {name: self.structural(value, f'{where}.{name}') for name, value in node['properties'].items()}
        elif isinstance(node.get('additionalProperties'), dict):
            out['additionalProperties'] = self.structural(node['additionalProperties'], f'{where}.*')
        if 'propertyNames' in node:
            pattern = node['propertyNames']['pattern']
            out['x-kubernetes-validations'] = [rule(f"self.all(key, key.matches('{pattern}'))", f'its keys match {pattern}')]
        if 'items' in node:
            out['items'] = self.structural(node['items'], f'{where}.items')
            # Two who apply one policy do not get the union of their lists: who comes second is told of the conflict.
            out['x-kubernetes-list-type'] = 'atomic'

    @staticmethod
    def alternatives(node):
        """oneOf and not, where all they say is which keys there are."""
        rules = []
        if 'oneOf' in node:
            keys = [one['required'][0] for one in node['oneOf']]
            has = ', '.join(f'has(self.{key})' for key in keys)
            rules.append(rule(f'[{has}].exists_one(is, is)', 'it needs exactly one of ' + ', '.join(keys)))
        if 'not' in node:
            keys = node['not']['required']
            rules.append(rule('!(' + ' && '.join(f'has(self.{key})' for key in keys) + ')', ' and '.join(keys) + ' exclude each other'))
        return rules

    def port(self, where):
        number, text = self.definitions['port']['anyOf']
        pattern = text['pattern']
        if where == 'portOrAny':
            pattern = f'^(any|{pattern[1:-1]})$'
        return int_or_string({'minimum': number['minimum'], 'maximum': number['maximum'], 'pattern': pattern, 'maxLength': len('65535-65535')},
                             'A port, or a range like 8000-8100' + ('; any = all of them.' if where == 'portOrAny' else '.'))


def status():
    texts = {'reason': {'type': 'string', 'minLength': 1, 'maxLength': 1024, 'pattern': '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$'},
             'message': {'type': 'string', 'maxLength': 32768},
             'type': {'type': 'string', 'maxLength': 316}}
    condition = {'type': 'object', 'required': ['type', 'status', 'lastTransitionTime', 'reason', 'message'],
                 'properties': {**texts, 'status': {'type': 'string', 'enum': ['True', 'False', 'Unknown']},
                                'lastTransitionTime': {'type': 'string', 'format': 'date-time'},
                                'observedGeneration': {'type': 'integer', 'format': 'int64', 'minimum': 0}}}
    return {'type': 'object', 'description': 'What the agents say of it: Accepted, and Degraded where a node does not enforce it.',
            'properties': {
                'observedGeneration': {'type': 'integer', 'format': 'int64', 'minimum': 0},
                'conditions': {'type': 'array', 'items': condition, 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['type']}}}


def columns():
    def condition(name):
        return {'name': name, 'type': 'string', 'jsonPath': f'.status.conditions[?(@.type=="{name}")].status'}
    return [{'name': 'Mode', 'type': 'string', 'jsonPath': '.spec.mode'},
            {'name': 'Violation', 'type': 'string', 'jsonPath': '.spec.violation'},
            condition('Accepted'), condition('Degraded'),
            {'name': 'Reason', 'type': 'string', 'priority': 1, 'jsonPath': '.status.conditions[?(@.type=="Degraded")].reason'},
            {'name': 'Age', 'type': 'date', 'jsonPath': '.metadata.creationTimestamp'}]


def root(schema, description):
    policy = Maker(schema).structural(schema['definitions']['policy']['properties']['spec'], 'spec')
    policy.pop('nullable')  # a null would be dropped by clients: "required" then says so
    tests = Maker(schema).structural(schema['definitions']['policy']['properties']['tests'], 'policy.tests')
    name = schema['definitions']['name']['pattern']
    return {'type': 'object', 'description': description, 'required': ['spec'],
            'properties': {'apiVersion': {'type': 'string'}, 'kind': {'type': 'string'}, 'metadata': {'type': 'object'},
                           'spec': policy, 'tests': tests, 'status': status()},
            'x-kubernetes-validations': [
                rule(f"self.metadata.name.matches('{name}')",
                     "metadata.name: at most 63 of a-z, 0-9, '-' and '.', with a letter or digit at both ends")]}


def crd(schema, kind, scope, short, description):
    plural = kind[:-1].lower() + 'ies'
    return {'apiVersion': 'apiextensions.k8s.io/v1', 'kind': 'CustomResourceDefinition',
            'metadata': {'name': f'{plural}.{GROUP}', 'labels': {'app.kubernetes.io/part-of': 'stockade'}},
            'spec': {'group': GROUP, 'scope': scope,
                     'names': {'kind': kind, 'listKind': kind + 'List', 'plural': plural, 'singular': kind.lower(), 'shortNames': [short],
                               'categories': ['stockade']},
                     'versions': [{'name': 'v1', 'served': True, 'storage': True, 'subresources': {'status': {}},
                                   'additionalPrinterColumns': columns(),
                                   'schema': {'openAPIV3Schema': root(schema, description)}}]}}


def made():
    """File name -> what belongs in it."""
    with open(os.path.join(HERE, 'sandboxpolicy.schema.json'), encoding='utf-8') as file:
        schema = json.load(file)
    both = {'sandboxpolicies.yaml': crd(schema, 'SandboxPolicy', 'Namespaced', 'sbp',
                                        'What the sandboxes of one namespace may execute, read, write, connect to and ask of DNS.'),
            'clustersandboxpolicies.yaml': crd(schema, 'ClusterSandboxPolicy', 'Cluster', 'csbp',
                                               'A ceiling above the policies of all namespaces, and a policy that pods of any may name.')}
    head = '# Made by rules/schema/crd.py from sandboxpolicy.schema.json: change that, and run it.\n'
    return {name: head + yaml.dump(value, Dumper=Plain, sort_keys=False, width=140) for name, value in both.items()}


class Plain(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


def stale():
    """Names of the files that are not what they should be."""
    out = []
    for name, text in made().items():
        try:
            with open(os.path.join(TARGET, name), encoding='utf-8') as file:
                same = file.read() == text
        except FileNotFoundError:
            same = False
        out += [] if same else [name]
    return out


if __name__ == '__main__':
    if sys.argv[1:] == ['--check']:
        sys.exit('\n'.join(f'{name} is not what rules/schema/crd.py makes of the schema: run it' for name in stale()) or 0)
    for file_name, content in made().items():
        with open(os.path.join(TARGET, file_name), 'w', encoding='utf-8') as out_file:
            out_file.write(content)
