#!/usr/bin/python3
"""The policies that make and delete: what they do, through the gate, and that each condition of them is needed for it."""

import copy
import os
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases  # noqa: E402
import gate  # noqa: E402
import policies  # noqa: E402
import yaml  # noqa: E402


def folder_is_whole(folder):
    document = policies.policy(folder)
    wanted = (policies.MAKERS[folder], 'policies.kyverno.io/v1', f'stockade-{folder}')
    if (document['kind'], document['apiVersion'], document['metadata']['name']) != wanted:
        yield f'policy.yaml is not {wanted}'


def is_green(folder, document):
    """The folder's test with another policy in the place of its own."""
    with tempfile.TemporaryDirectory(prefix='stockade-kyverno.') as scratch:
        copied = os.path.join(scratch, folder)
        shutil.copytree(os.path.join(policies.POLICIES, folder), copied)
        shutil.copy(os.path.join(policies.POLICIES, 'values.yaml'), scratch)
        with open(os.path.join(copied, 'policy.yaml'), 'w', encoding='utf-8') as file:
            yaml.safe_dump(document, file, sort_keys=False)
        return not gate.check(copied)


def every_condition_is_needed(folder):
    """A DeletingPolicy of which one condition says `true` deletes what it should keep."""
    document = policies.policy(folder)
    for number, condition in enumerate(document['spec']['conditions']):
        mutant = copy.deepcopy(document)
        mutant['spec']['conditions'][number]['expression'] = 'true'
        if is_green(folder, mutant):
            yield f"{condition['name']} can say true, and all stays green"


def what_is_made_is_compared():
    """The closed NetworkPolicy of which something is left out, and none at all, are not what is expected."""
    document = policies.policy('network-default')
    closed = next(variable for variable in document['spec']['variables'] if variable['name'] == 'closed')
    for old, new in (('dyn(["Ingress", "Egress"])', 'dyn(["Ingress"])'), ('"stockade-default-deny"', '"other"'),
                     ('"podSelector": dyn({})', '"podSelector": dyn({"matchLabels": {"a": "b"}})')):
        mutant = copy.deepcopy(document)
        variable = next(one for one in mutant['spec']['variables'] if one['name'] == 'closed')
        variable['expression'] = closed['expression'].replace(old, new)
        if variable['expression'] == closed['expression'] or is_green('network-default', mutant):
            yield f'{new} in the place of {old}: all stays green'
    mutant = copy.deepcopy(document)
    mutant['spec']['matchConditions'][0]['expression'] = 'false'
    if is_green('network-default', mutant):
        yield 'it can make nothing, and all stays green'


def all_cases():
    found = {f'Whole/{folder}': lambda folder=folder: folder_is_whole(folder) for folder in policies.MAKERS}
    for folder in policies.MAKERS:
        found[f'Test/{folder}'] = lambda folder=folder: gate.check(os.path.join(policies.POLICIES, folder))
    found['Needed/leftovers'] = lambda: every_condition_is_needed('leftovers')
    found['Needed/network-default'] = what_is_made_is_compared
    return found


if __name__ == '__main__':
    sys.exit(cases.run(all_cases()))
