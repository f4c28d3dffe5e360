#!/usr/bin/python3
"""deploy/systemd/stockaded.service by systemd's own reader, and what must stand in it for sandboxes to outlive their agent."""

import configparser
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.environ['STOCKADE_SOURCE_DIR']
UNIT = os.path.join(ROOT, 'deploy', 'systemd', 'stockaded.service')
TIMEOUT_S = 60
# Key -> why.
NEEDED = {
    'Type': ('notify', 'a start that is not attested is no start'),
    'KillMode': ('process', 'shims must survive a restart of the agent'),
    'RuntimeDirectoryPreserve': ('yes', 'the next agent finds its sandboxes there'),
    'Restart': ('always', 'without an agent sandboxes end'),
    'NoNewPrivileges': ('yes', 'nothing that is started needs more'),
}
# A mount namespace or a filter of the service's own would be every sandbox's.
FORBIDDEN = ['ProtectSystem', 'ProtectHome', 'PrivateTmp', 'PrivateDevices', 'PrivateNetwork', 'RestrictNamespaces', 'SystemCallFilter',
             'RestrictAddressFamilies', 'MemoryDenyWriteExecute', 'OOMScoreAdjust', 'ReadOnlyPaths', 'InaccessiblePaths']


def read(path):
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str
    parser.read(path)
    return parser


def verify(text):
    """(status, output) of systemd-analyze, with the build's binary in the place of the installed one."""
    with tempfile.TemporaryDirectory(prefix='stockade-unit.') as scratch:
        path = os.path.join(scratch, 'stockaded.service')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text.replace('/usr/bin/stockaded', '/bin/true'))
        done = subprocess.run(['systemd-analyze', 'verify', '--man=no', '--recursive-errors=no', path], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S, check=False)
        return done.returncode, done.stdout


def main():
    if not shutil.which('systemd-analyze'):
        sys.exit('systemd-analyze is not there: ./dev setup')
    with open(UNIT, encoding='utf-8') as file:
        text = file.read()
    status, output = verify(text)
    if status or 'stockaded.service' in output:
        sys.exit(f'systemd-analyze verify: {status}\n{output}')
    # And it does look: a key that does not exist is told.
    status, output = verify(text.replace('KillMode=', 'KilMode='))
    if "KilMode" not in output:
        sys.exit(f'systemd-analyze does not see a wrong key\n{output}')
    service = read(UNIT)['Service']
    for key, (value, why) in NEEDED.items():
        if service.get(key) != value:
            sys.exit(f'{key}={service.get(key)}, not {value}: {why}')
    for key in FORBIDDEN:
        if key in service:
            sys.exit(f'{key} is set, and sandboxes would inherit it')
    watchdog = int(service['WatchdogSec'].rstrip('s'))
    if not 5 <= watchdog <= 60:
        sys.exit(f'WatchdogSec={watchdog}: a loaded node needs seconds, and one that hangs must not stay for minutes')
    kept = set(service['CapabilityBoundingSet'].split())
    for capability in ('CAP_SYS_MODULE', 'CAP_SYS_RAWIO', 'CAP_SYS_BOOT', 'CAP_SYS_TIME', 'CAP_MAC_ADMIN', 'CAP_AUDIT_CONTROL', 'CAP_SYSLOG'):
        if capability in kept:
            sys.exit(f'{capability}: nothing of Stockade needs it')
    print(f'{len(kept)} capabilities, WatchdogSec={watchdog}s')


if __name__ == '__main__':
    main()
