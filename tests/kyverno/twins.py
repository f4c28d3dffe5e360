"""Native policies in force on an API server, and the moment from which they are."""

import itertools
from contextlib import contextmanager

import policies

_numbers = itertools.count()


def in_force(folder):
    return policies.twins(folder) + policies.bindings(folder)


def refused_by(answer, folder):
    """By a native policy of the folder; '' for any of ours."""
    return answer.status in (403, 422) and f"ValidatingAdmissionPolicy 'stockade-{folder}" in answer.message


def sentinel(name, more=None, more_of_binding=None):
    """Refuses one ConfigMap that nobody makes."""
    rule = {'apiGroups': [''], 'apiVersions': ['v1'], 'operations': ['CREATE'], 'resources': ['configmaps'], 'resourceNames': [name]}
    group = 'admissionregistration.k8s.io/v1'
    yield {'apiVersion': group, 'kind': 'ValidatingAdmissionPolicy', 'metadata': {'name': name}, 'spec': {
        'failurePolicy': 'Fail', 'matchConstraints': {'resourceRules': [rule]}, 'validations': [{'expression': 'false', 'message': name}],
        **(more or {})}}
    yield {'apiVersion': group, 'kind': 'ValidatingAdmissionPolicyBinding', 'metadata': {'name': name}, 'spec': {
        'policyName': name, 'validationActions': ['Deny'], **(more_of_binding or {})}}


def keep_reading(api, version, kind):
    """Keeps the server reading a kind of policies' parameters. Once nothing bound has parameters of a built-in kind, a server never reads
    that kind again until it is restarted (kubernetes/kubernetes#130887), and these tests bind and unbind all the time."""
    for document in sentinel('keep-reading', {'paramKind': {'apiVersion': version, 'kind': kind}},
                             {'paramRef': {'name': 'nobody', 'parameterNotFoundAction': 'Allow'}}):
        api.must(api.create(document))


def settle(api):
    """Waits until the server judges by the policies as they are now. It tells nobody when it does, but takes changes over in their order:
    once it refuses by a policy that came after them, all of them are in force."""
    name = f'sentinel-{next(_numbers)}'
    documents = list(sentinel(name))
    for document in documents:
        api.must(api.create(document))
    witness = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': name, 'namespace': 'default'}}
    api.until(lambda: api.create(witness, dry_run=True).status == 422, f'{name} is in force')
    for document in reversed(documents):
        api.must(api.delete(document))


@contextmanager
def bound(api, documents):
    """Policies and bindings, in force while the block runs and no longer."""
    for document in documents:
        api.must(api.create(document))
    try:
        settle(api)
        yield
    finally:
        for document in reversed(documents):
            api.must(api.delete(document))
        settle(api)
