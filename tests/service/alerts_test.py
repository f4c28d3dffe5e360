#!/usr/bin/python3
"""The alerts of deploy/prometheus through the real promtool: valid, they find what they are for, and none is without a test."""

import copy
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import promtool  # noqa: E402
import yaml  # noqa: E402

RULES = os.path.join(promtool.ROOT, 'deploy', 'prometheus', 'stockade.rules.yaml')
CASES = os.path.join(promtool.ROOT, 'deploy', 'prometheus', 'stockade.rules.test.yaml')
# An expression that holds of nothing.
NEVER = 'vector(0) > 1'
TIMEOUT_S = 60


def run(*arguments):
    done = subprocess.run([promtool.path(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=TIMEOUT_S, check=False)
    return done.returncode, done.stdout


def cases_hold(rules):
    with tempfile.TemporaryDirectory(prefix='stockade-alerts.') as scratch:
        with open(os.path.join(scratch, os.path.basename(RULES)), 'w', encoding='utf-8') as file:
            yaml.safe_dump(rules, file, sort_keys=False)
        shutil.copy(CASES, scratch)
        return run('test', 'rules', os.path.join(scratch, os.path.basename(CASES)))


def main():
    status, output = run('check', 'rules', '--lint-fatal', RULES)
    if status:
        sys.exit(output)
    with open(RULES, encoding='utf-8') as file:
        rules = yaml.safe_load(file)
    status, output = cases_hold(rules)
    if status:
        sys.exit(output)
    alerts = rules['groups'][0]['rules']
    for index, alert in enumerate(alerts):
        mutant = copy.deepcopy(rules)
        mutant['groups'][0]['rules'][index]['expr'] = NEVER
        if cases_hold(mutant)[0] == 0:
            sys.exit(f'{alert["alert"]} has no case: all stays green when it never fires')
    print(f'{len(alerts)} alerts, each with a case that needs it')


if __name__ == '__main__':
    main()
