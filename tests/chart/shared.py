"""What the tests of the chart share with those of kyverno/: the tools, the API server, the way to run cases."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.environ.get('STOCKADE_SOURCE_DIR') or os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get('STOCKADE_BIN_DIR') or os.path.join(ROOT, 'build', 'dev', 'bin')
CHART = os.path.join(ROOT, 'deploy', 'helm', 'stockade')
CRDS = os.path.join(CHART, 'files', 'crds')
sys.path.insert(0, os.path.join(ROOT, 'tests', 'kyverno'))
sys.path.insert(0, os.path.join(ROOT, 'rules', 'schema'))

TIMEOUT_S = 300


def run(*command, **more):
    """(exit status, standard output, standard error)"""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S,
                          check=False, **more)
    return done.returncode, done.stdout, done.stderr


def must(*command, **more):
    status, output, errors = run(*command, **more)
    if status:
        raise RuntimeError(f'{" ".join(command)}: {status}\n{output}\n{errors}')
    return output
