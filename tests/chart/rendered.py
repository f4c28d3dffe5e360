"""The chart as the real Helm renders it, and the real Helm at an API server."""

import json
import os

import shared
import tools
import yaml

CI = os.path.join(shared.CHART, 'ci')
RELEASE = 'guard'
# The admission policies protect this one and no other.
NAMESPACE = 'stockade'


def combinations():
    return sorted(name for name in os.listdir(CI) if name.endswith('.yaml'))


def values_of(name):
    return os.path.join(CI, name)


class Helm:
    """Its folders are the test's own; with an API server it is the cluster's administrator, or who `who` says."""

    def __init__(self, folder, api=None):
        self.folder = folder
        self.kubeconfig = os.path.join(folder, 'kubeconfig')
        if api:
            self.write_kubeconfig(api)

    def write_kubeconfig(self, api):
        config = {'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'x',
                  'clusters': [{'name': 'x', 'cluster': {'server': f'https://127.0.0.1:{api.port}', 'certificate-authority': api.file('ca.crt')}}],
                  'users': [{'name': 'x', 'user': {'client-certificate': api.file('admin.crt'), 'client-key': api.file('admin.key')}}],
                  'contexts': [{'name': 'x', 'context': {'cluster': 'x', 'user': 'x'}}]}
        with open(self.kubeconfig, 'w', encoding='utf-8') as file:
            json.dump(config, file)

    def run(self, *arguments):
        """(exit status, standard output, standard error)"""
        environment = {'PATH': os.environ['PATH'], 'HOME': self.folder, 'HELM_CACHE_HOME': self.folder, 'HELM_CONFIG_HOME': self.folder,
                       'HELM_DATA_HOME': self.folder, 'KUBECONFIG': self.kubeconfig}
        return shared.run(tools.path('helm'), *arguments, env=environment)

    def must(self, *arguments):
        status, output, errors = self.run(*arguments)
        if status:
            raise AssertionError(f'helm {" ".join(arguments)}: {status}\n{output}\n{errors}')
        return output

    def template(self, *values, namespace=NAMESPACE, sets=()):
        flags = [flag for value in values for flag in ('--values', value)] + [flag for one in sets for flag in ('--set', one)]
        text = self.must('template', RELEASE, shared.CHART, '--namespace', namespace, '--kube-version', '1.35.4', *flags)
        return [document for document in yaml.safe_load_all(text) if document]


def find(documents, kind, name=None):
    return [document for document in documents if document['kind'] == kind and name in (None, document['metadata']['name'])]


def agent_config(documents):
    """The text of /etc/stockade/config.yaml."""
    return next(document['data']['config.yaml'] for document in find(documents, 'ConfigMap') if 'config.yaml' in document['data'])


def put(folder, item, text):
    path = os.path.join(folder, item['path'])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)


def write_files(documents, folder, moved=True):
    """What the pod has in /etc/stockade, in `folder`. `moved`: the configuration's paths are changed to where things are here. Returns its path."""
    daemonset = find(documents, 'DaemonSet')[0]
    volume = next(volume for volume in daemonset['spec']['template']['spec']['volumes'] if volume['name'] == 'config')
    for source in volume['projected']['sources']:
        for item in source.get('configMap', {}).get('items', []):
            put(folder, item, find(documents, 'ConfigMap', source['configMap']['name'])[0]['data'][item['key']])
        # The operator's: what is in them is looked at when a broker is.
        for item in source.get('secret', {}).get('items', []):
            put(folder, item, 'secret\n')
    path = os.path.join(folder, 'config.yaml')
    if not moved:
        return path
    with open(path, encoding='utf-8') as file:
        text = file.read()
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text.replace('/etc/stockade/', folder + '/').replace('/usr/share/stockade/detections', shared.ROOT + '/rules/detections'))
    return path
