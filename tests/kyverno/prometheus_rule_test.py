#!/usr/bin/python3
"""The PrometheusRule of deploy/kubernetes through the real promtool: who it finds, who it leaves alone, and that each part of it is needed."""

import copy
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import cases  # noqa: E402
import gate  # noqa: E402
import policies  # noqa: E402
import tools  # noqa: E402
import yaml  # noqa: E402

TIMEOUT_S = 60
# Alert -> parts of its expression, and what each is weakened to.
PARTS = {
    'StockadeJobPastItsTime': [('> 4800', '> -10000'), ('{label_stockade_dev_session!=""}', '')],
    'StockadePodPastItsTime': [('> 4800', '> -10000'), ('{label_stockade_dev_session!=""}', ''), ('== 1', '>= 0')],
    'StockadeVolumePastItsTime': [('> 4800', '> -10000'), ('{label_stockade_dev_session!=""}', ''),
                                  ('unless on (namespace, persistentvolumeclaim) kube_pod_spec_volumes_persistentvolumeclaims_info', '')],
    'StockadeBreakGlassForgotten': [('{label_stockade_dev_break_glass!=""}', '')],
}


def rule():
    return gate.documents(os.path.join(policies.ROOT, 'deploy', 'kubernetes', 'prometheus-rule.yaml'))[0]


def promtool(document, *arguments):
    """(exit status, output) of promtool on the groups of a PrometheusRule, which are what a rule file of Prometheus has."""
    with tempfile.TemporaryDirectory(prefix='stockade-rules.') as scratch:
        with open(os.path.join(scratch, 'rules.yaml'), 'w', encoding='utf-8') as file:
            yaml.safe_dump({'groups': document['spec']['groups']}, file, sort_keys=False)
        shutil.copy(os.path.join(HERE, 'prometheus_rule_cases.yaml'), scratch)
        done = subprocess.run([tools.path('promtool'), *arguments], cwd=scratch, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S, check=False)
    return done.returncode, done.stdout


def finds_what_is_left(document):
    status, output = promtool(document, 'test', 'rules', 'prometheus_rule_cases.yaml')
    return [] if status == 0 and 'SUCCESS' in output else [output[-2000:]]


def is_valid():
    status, output = promtool(rule(), 'check', 'rules', '--lint-fatal', 'rules.yaml')
    return [] if status == 0 and f'{len(PARTS)} rules found' in output else [output]


def every_part_is_needed():
    for index, alert in enumerate(rule()['spec']['groups'][0]['rules']):
        for old, new in PARTS[alert['alert']] + [(None, None)]:
            mutant = copy.deepcopy(rule())
            changed = mutant['spec']['groups'][0]['rules'][index]
            if old is None:
                changed['for'] = '0s'
            else:
                changed['expr'] = changed['expr'].replace(old, new)
            if changed == alert or not finds_what_is_left(mutant):
                yield f"{alert['alert']}: {new!r} in the place of {old!r}: all stays green"


if __name__ == '__main__':
    sys.exit(cases.run({'Valid': is_valid, 'Finds': lambda: finds_what_is_left(rule()), 'Needed': every_part_is_needed}))
