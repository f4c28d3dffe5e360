#!/usr/bin/python3
"""Tests of gate.py on the CLI's own false greens: each ends with 0 there, and must be an error here."""

import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases  # noqa: E402
import gate  # noqa: E402
import yaml  # noqa: E402

RULES = [{'apiGroups': [''], 'apiVersions': ['v1'], 'operations': ['CREATE', 'UPDATE'], 'resources': ['configmaps']}]


def validating(expression="object.data.a == 'good'", **match):
    return {'apiVersion': 'policies.kyverno.io/v1', 'kind': 'ValidatingPolicy', 'metadata': {'name': 'p'},
            'spec': {'matchConstraints': {'resourceRules': RULES, **match}, 'validations': [{'expression': expression, 'message': 'no'}]}}


def config_map(name, value):
    return {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': name, 'namespace': 'ns'}, 'data': {'a': value}}


def result(outcome, *names, **more):
    return {'isValidatingPolicy': True, 'policy': 'p', 'kind': 'ConfigMap', 'resources': list(names), 'result': outcome, **more}


GOOD, BAD = config_map('good', 'good'), config_map('bad', 'bad')
BOTH = [result('pass', 'ns/good'), result('fail', 'ns/bad')]


def outcome(policy, results, resources=(GOOD, BAD), more=(), **test):
    """(exit status of the CLI, problems of the gate)"""
    with tempfile.TemporaryDirectory(prefix='stockade-gate.') as folder:
        test = {'apiVersion': 'cli.kyverno.io/v1alpha1', 'kind': 'Test', 'metadata': {'name': 't'}, 'policies': ['policy.yaml'],
                'resources': ['resources.yaml'], **test, 'results': results}
        for name, documents in ((gate.TEST_FILE, [test]), ('policy.yaml', [policy, *more]), ('resources.yaml', list(resources))):
            with open(os.path.join(folder, name), 'w', encoding='utf-8') as file:
                yaml.safe_dump_all(documents, file)
        return gate.run_cli(folder)[1], gate.check(folder)


def false_green(*arguments, says, **more):
    """The CLI is content, and the gate says why it is not."""
    status, problems = outcome(*arguments, **more)
    if status:
        yield f'the CLI ends with {status}: no false green any more'
    if not any(says in problem for problem in problems):
        yield f'the gate does not say "{says}": {problems}'


def bound_native():
    """A native policy that selects nothing here refuses, says the CLI, once it has a binding."""
    meta = {'apiVersion': 'admissionregistration.k8s.io/v1', 'metadata': {'name': 'p'}}
    match = {'resourceRules': RULES, 'namespaceSelector': {'matchLabels': {'sandbox': 'true'}}}
    native = {**meta, 'kind': 'ValidatingAdmissionPolicy', 'spec': {'matchConstraints': match, 'validations': [{'expression': 'false'}]}}
    binding = {**meta, 'kind': 'ValidatingAdmissionPolicyBinding', 'spec': {'policyName': 'p', 'validationActions': ['Deny']}}
    one = {**result('fail', 'ns/bad'), 'isValidatingAdmissionPolicy': True}
    del one['isValidatingPolicy']
    return false_green(native, [one], resources=[BAD], more=[binding], says='does not ask what the policy selects')


def true_green():
    status, problems = outcome(validating(), BOTH)
    return problems + ([f'the CLI ends with {status}'] if status else [])


def true_red(*arguments, **more):
    status, problems = outcome(*arguments, **more)
    return [] if status and problems else [f'the CLI ends with {status}, the gate says {problems}']


def empty_folder():
    with tempfile.TemporaryDirectory(prefix='stockade-gate.') as folder:
        return [] if gate.check(folder) and gate.run_cli(folder)[1] else ['an empty folder passes']


NAMESPACE = {'namespaceSelector': {'matchLabels': {'sandbox': 'true'}}}
MUTATING = {'apiVersion': 'policies.kyverno.io/v1', 'kind': 'MutatingPolicy', 'metadata': {'name': 'p'},
            'spec': {'matchConstraints': {'resourceRules': RULES}, 'mutations': [{'patchType': 'ApplyConfiguration', 'applyConfiguration': {
                'expression': "Object{metadata: Object.metadata{labels: {'x': 'y'}}}"}}]}}
GENERATING = {'apiVersion': 'policies.kyverno.io/v1', 'kind': 'GeneratingPolicy', 'metadata': {'name': 'p'},
              'spec': {'matchConstraints': {'resourceRules': RULES}, 'variables': [{'name': 'made', 'expression':
                  "[{'apiVersion': dyn('v1'), 'kind': dyn('ConfigMap'), 'metadata': dyn({'name': 'made', 'namespace': 'ns'})}]"}],
                       'generate': [{'expression': "generator.Apply('ns', variables.made)"}]}}


def of_kind(flag):
    one = result('pass', 'ns/good')
    del one['isValidatingPolicy']
    return [{**one, flag: True}]


CASES = {
    'ShownIsGreen': true_green,
    'WrongExpectationIsRed': lambda: true_red(validating(), [result('fail', 'ns/good'), result('fail', 'ns/bad')]),
    'WeakenedPolicyIsRed': lambda: true_red(validating('true'), BOTH),
    'BrokenExpressionIsRed': lambda: true_red(validating('object.data.a =='), BOTH),
    'ExpressionThatFailsIsNoRefusal': lambda: true_red(validating("object.nothing.a == 'x'"), [result('fail', 'ns/good', 'ns/bad')]),
    'NotSelectedByNamespace': lambda: false_green(validating(**NAMESPACE), [result('fail', 'ns/good', 'ns/bad')], says='Excluded'),
    'NotSelectedByObject': lambda: true_red(validating(objectSelector={'matchLabels': {'x': 'y'}}), [result('fail', 'ns/good', 'ns/bad')]),
    'AbsentNameBesideAnother': lambda: false_green(validating(), [result('pass', 'ns/good'), result('fail', 'ns/bad', 'ns/absent')],
                                                   says='no such resource'),
    'AllNamesAbsent': lambda: false_green(validating(), [result('fail', 'ns/absent')], resources=[BAD], says='no such resource'),
    'NoNames': lambda: false_green(validating(), [result('fail')], resources=[BAD], says='names no resources'),
    'ResourceNobodyAskedAbout': lambda: false_green(validating(), [result('fail', 'ns/bad')], says='nothing is expected'),
    'SameNameTwice': lambda: true_red(validating(), [result('fail', 'ns/bad')], resources=[BAD, {**BAD, 'kind': 'Secret'}]),
    'MutationWithoutPatch': lambda: false_green(MUTATING, of_kind('isMutatingPolicy'), resources=[GOOD], says='patchedResources is missing'),
    'GenerationWithoutResource': lambda: false_green(GENERATING, of_kind('isGeneratingPolicy'), resources=[GOOD],
                                                     says='generatedResource is missing'),
    'UpdateWithoutChange': lambda: false_green(validating("request.operation != 'UPDATE' || object == oldObject"),
                                               [result('pass', 'ns/good', 'ns/bad', operation='UPDATE')], says='use the API server'),
    'NativePolicyWithBinding': bound_native,
    'EmptyFolder': empty_folder,
}

if __name__ == '__main__':
    sys.exit(cases.run(CASES))
