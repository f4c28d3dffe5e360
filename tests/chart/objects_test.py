#!/usr/bin/python3
"""Policies as objects of a real API server: the shipped ones are admitted, broken ones are refused with the field and why, by the server and
by the agent's parser; and each CEL rule of the CRDs is needed."""

import copy
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import shared  # noqa: E402
import broken  # noqa: E402
import cases  # noqa: E402
import gate  # noqa: E402
import server  # noqa: E402
import yaml  # noqa: E402

KINDS = ('SandboxPolicy', 'ClusterSandboxPolicy')
POLICIES = os.path.join(shared.ROOT, 'rules', 'policies')


def crds():
    return [document for name in sorted(os.listdir(shared.CRDS)) for document in gate.documents(os.path.join(shared.CRDS, name))]


def as_object(document, kind):
    document = copy.deepcopy(document)
    document['kind'] = kind
    if kind == 'SandboxPolicy':
        document['metadata']['namespace'] = 'default'
    return document


def define(api):
    for document in crds():
        api.must(api.create(document))
    api.until(lambda: all(served(api, kind) for kind in KINDS), 'the kinds are served')


def served(api, kind):
    return api.create(as_object(broken.GOOD, kind), dry_run=True).status == 201


def shipped_are_admitted(api):
    names = sorted(name for name in os.listdir(POLICIES) if name.endswith('.yaml'))
    documents = [document for name in names for document in gate.documents(os.path.join(POLICIES, name))]
    if len(documents) < 6:
        yield f'only {len(documents)} policies found'
    for document in documents:
        for kind in KINDS:
            wanted = as_object(document, kind)
            answer = api.create(wanted)
            if answer.status != 201:
                yield f"{kind} {document['metadata']['name']}: {answer.status} {answer.message}"
                continue
            # The server keeps every word: a key that it dropped would be a rule that nobody has.
            kept = api.get(wanted)
            for part in ('spec', 'tests'):
                if kept.get(part) != document.get(part):
                    yield f"{kind} {document['metadata']['name']}: {part} is kept as {kept.get(part)}"


def given_back_they_are_read(api):
    """As kubectl writes them into a ConfigMap: lists of objects with all that the server adds. Run after they were admitted."""
    stockade = os.path.join(shared.BIN, 'stockade')
    items = []
    for kind, path in (('SandboxPolicy', '/apis/stockade.dev/v1/sandboxpolicies'), ('ClusterSandboxPolicy', '/apis/stockade.dev/v1/clustersandboxpolicies')):
        found = api.must(api.call('GET', path)).body['items']
        # In a list of one kind the server leaves out what each item is; kubectl puts it back.
        items += [{'apiVersion': 'stockade.dev/v1', 'kind': kind, **item} for item in found]
    if len(items) < 12 or not all(item['metadata'].get('managedFields') for item in items):
        yield f'{len(items)} objects'
    with tempfile.TemporaryDirectory(prefix='stockade-objects.') as scratch:
        path = os.path.join(scratch, 'policies.yaml')
        with open(path, 'w', encoding='utf-8') as file:
            yaml.safe_dump({'apiVersion': 'v1', 'kind': 'List', 'metadata': {'resourceVersion': ''}, 'items': items}, file)
        status, output, errors = shared.run(stockade, 'policy', 'check', path)
        if status:
            yield f'{status} {output}{errors}'


def broken_are_refused(api):
    for kind in KINDS:
        answer = api.create(as_object(broken.GOOD, kind), dry_run=True)
        if answer.status != 201:
            yield f'the good one as {kind}: {answer.status} {answer.message}'
        for case in broken.CASES:
            answer = api.create(as_object(broken.broken(case), kind), dry_run=True)
            if answer.status not in (400, 422):
                yield f'{kind} {case.name}: {answer.status} {answer.message}'
            elif case.field not in answer.message or case.words not in answer.message:
                yield f'{kind} {case.name}: not said of {case.field}: {answer.message}'


def parser_refuses_them_too():
    """The agent's reader is not laxer than the server where both are asked."""
    stockade = os.path.join(shared.BIN, 'stockade')
    with tempfile.TemporaryDirectory(prefix='stockade-objects.') as scratch:
        path = os.path.join(scratch, 'policy.yaml')
        for case in [None, *broken.CASES]:
            if case and case.name in broken.ONLY_OBJECTS:
                continue
            with open(path, 'w', encoding='utf-8') as file:
                yaml.safe_dump(broken.broken(case) if case else broken.GOOD, file)
            status, output, errors = shared.run(stockade, 'policy', 'check', path)
            if status != (1 if case else 0):
                yield f"{case.name if case else 'the good one'}: {status} {output}{errors}"


def rules_of(node, way=()):
    """(way to the list of CEL rules, index) of all of a schema."""
    for key, value in node.items():
        if key == 'x-kubernetes-validations':
            yield from ((way + (key,), index) for index in range(len(value)))
        elif isinstance(value, dict):
            yield from rules_of(value, way + (key,))


def every_rule_is_needed(api):
    """With a rule that says `true` in its place, something that was refused is admitted."""
    crd = next(document for document in crds() if document['spec']['names']['kind'] == 'SandboxPolicy')
    schema = crd['spec']['versions'][0]['schema']['openAPIV3Schema']
    probes = [as_object(broken.broken(case), 'SandboxPolicy') for case in broken.CASES]
    if any(api.create(probe, dry_run=True).status == 201 for probe in probes):
        return ['a broken policy is admitted by the CRD as it is']
    found, needed = list(rules_of(schema)), []
    for way, index in found:
        mutant = copy.deepcopy(crd)
        place = mutant['spec']['versions'][0]['schema']['openAPIV3Schema']
        for step in way:
            place = place[step]
        was, place[index]['rule'] = place[index]['rule'], 'true'
        # A mark that the server shows once it judges by this version.
        mark = f'mutant-{len(needed)}'
        mutant['spec']['versions'][0]['schema']['openAPIV3Schema']['properties']['spec']['properties']['entered']['enum'].append(mark)
        api.must(api.patch(crd, {'spec': mutant['spec']}))
        witness = as_object(broken.GOOD, 'SandboxPolicy')
        witness['spec']['entered'] = mark
        api.until(lambda witness=witness: api.create(witness, dry_run=True).status == 201, f'{mark} is in force')
        needed.append((was, any(api.create(probe, dry_run=True).status == 201 for probe in probes)))
    api.must(api.patch(crd, {'spec': crd['spec']}))
    print(f'    {len(found)} rules')
    return [f'with `true` for {rule} nothing more is admitted' for rule, is_needed in needed if not is_needed]


def status_and_columns(api):
    """Conditions go through /status alone, and are what kubectl shows."""
    document = as_object(broken.GOOD, 'ClusterSandboxPolicy')
    document['metadata']['name'] = 'shown'
    api.must(api.create({**document, 'status': {'observedGeneration': 7}}))
    if 'status' in api.get(document):
        yield 'a status comes with the object itself'
    def condition(kind, value):
        return {'type': kind, 'status': value, 'reason': 'CompileFailed', 'message': 'x', 'lastTransitionTime': '2026-01-01T00:00:00Z'}
    good = {'status': {'observedGeneration': 1, 'conditions': [condition('Accepted', 'True'), condition('Degraded', 'False')]}}
    answer = api.patch(document, good, subresource='status')
    if answer.status != 200:
        yield f'status: {answer.status} {answer.message}'
    for what, conditions in {'a value that is none': [condition('Accepted', 'Maybe')], 'twice': [condition('Accepted', 'True')] * 2,
                             'no reason': [{'type': 'Accepted', 'status': 'True', 'message': 'x',
                                            'lastTransitionTime': '2026-01-01T00:00:00Z'}]}.items():
        answer = api.patch(document, {'status': {'conditions': conditions}}, subresource='status')
        if answer.status != 422 or 'status.conditions' not in answer.message:
            yield f'status, {what}: {answer.status} {answer.message}'
    table = api.table('/apis/stockade.dev/v1/clustersandboxpolicies')
    names = [column['name'] for column in table['columnDefinitions']]
    row = next(dict(zip(names, row['cells'])) for row in table['rows'] if row['cells'][0] == 'shown')
    wanted = {'Name': 'shown', 'Mode': 'enforce', 'Violation': 'kill-process', 'Accepted': 'True', 'Degraded': 'False'}
    if {name: row.get(name) for name in wanted} != wanted:
        yield f'the table has {row}'


def main():
    with server.Server() as api:
        define(api)
        return cases.run({
            'ShippedAreAdmitted': lambda: shipped_are_admitted(api),
            'GivenBackTheyAreRead': lambda: given_back_they_are_read(api),
            'BrokenAreRefused': lambda: broken_are_refused(api),
            'ParserRefusesThemToo': parser_refuses_them_too,
            'StatusAndColumns': lambda: status_and_columns(api),
            'EveryRuleIsNeeded': lambda: every_rule_is_needed(api)})


if __name__ == '__main__':
    sys.exit(main())
