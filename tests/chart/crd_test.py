#!/usr/bin/python3
"""The CRDs are what the policy schema makes of them, which userspace/policy/schema_test.cc holds to the parser."""

import copy
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shared  # noqa: E402
import cases  # noqa: E402
import crd  # noqa: E402


def schema():
    with open(os.path.join(shared.ROOT, 'rules', 'schema', 'sandboxpolicy.schema.json'), encoding='utf-8') as file:
        return json.load(file)


def is_current():
    return [f'{name} is not what rules/schema/crd.py makes of the schema: run it' for name in crd.stale()]


def keys(node, structural, definitions, where):
    """Places of the JSON Schema that the CRD has not."""
    if '$ref' in node:
        node = definitions[node['$ref'].rsplit('/', 1)[1]]
    for name, value in node.get('properties', {}).items():
        there = structural.get('properties', {}).get(name)
        if there is None:
            yield f'{where}.{name}'
        else:
            yield from keys(value, there, definitions, f'{where}.{name}')
    for word in ('items', 'additionalProperties'):
        if isinstance(node.get(word), dict) and isinstance(structural.get(word), dict):
            yield from keys(node[word], structural[word], definitions, f'{where}.{word}')
        elif isinstance(node.get(word), dict):
            yield f'{where}.{word}'


def has_every_key():
    """Looked for without the generator, which could leave a branch out each time it runs."""
    whole = schema()
    made = crd.root(whole, '')['properties']
    policy = whole['definitions']['policy']['properties']
    for section in ('spec', 'tests'):
        yield from keys(policy[section], made[section], whole['definitions'], section)
    less = copy.deepcopy(made['spec'])
    del less['properties']['network']['properties']['allow']['items']['properties']['tls_name']
    if list(keys(policy['spec'], less, whole['definitions'], 'spec')) != ['spec.network.allow.items.tls_name']:
        yield 'a missing key is not found'


def follows_the_schema():
    whole = schema()
    whole['definitions']['spec']['properties']['entered']['enum'].append('sometimes')
    if 'sometimes' not in json.dumps(crd.root(whole, '')):
        yield 'a word that the schema gets does not come to the CRD'


if __name__ == '__main__':
    sys.exit(cases.run({'Current': is_current, 'EveryKey': has_every_key, 'Follows': follows_the_schema}))
