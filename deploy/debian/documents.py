#!/usr/bin/python3
"""Man pages and completions, as the programs themselves have them: documents.py STOCKADE STOCKADED DIRECTORY"""

import gzip
import os
import re
import subprocess
import sys

SHELLS = ('bash', 'zsh', 'fish')
FILES = [('/etc/stockade/config.yaml', 'the configuration; /usr/share/doc/stockade/config.md has its keys'),
         ('/etc/stockade/policies.d', 'policies of this host'), ('/usr/share/stockade/policies', 'policies that ship'),
         ('/etc/stockade/rules.d', 'detections of this host'), ('/usr/share/stockade/detections', 'detections that ship'),
         ('/run/stockade', "the agent's socket and the state of running sandboxes"), ('/var/lib/stockade', 'what outlives a reboot: spool, budgets, keys'),
         ('/sys/fs/bpf/stockade', 'programs and maps, which enforce also while no agent runs')]


def output(*command):
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, 'COLUMNS': '100', 'LC_ALL': 'C.UTF-8'}).stdout


def escaped(text):
    text = text.replace('\\', '\\e').replace('-', '\\-')
    return '\n'.join('\\&' + line if line.startswith(('.', "'")) else line for line in text.split('\n'))


def page(name, section, what, parts):
    lines = [f'.TH {name.upper()} {section} "" "Stockade" "System Administration"', '.SH NAME', f'{name} \\- {escaped(what)}']
    for heading, text in parts:
        lines += [f'.SH "{escaped(heading).upper()}"', '.nf', escaped(text.strip('\n')), '.fi']
    lines.append('.SH FILES')
    for path, meaning in FILES:
        lines += ['.TP', f'.I {escaped(path)}', escaped(meaning)]
    lines += ['.SH "SEE ALSO"', {'stockade': 'stockaded(8)', 'stockaded': 'stockade(1)'}[name] + ', /usr/share/doc/stockade', '']
    return '\n'.join(lines)


def commands(help_text):
    """Names of the subcommands, in the order of the help."""
    found = re.search(r'^Subcommands:\n(.*?)(?:\n\S|\Z)', help_text, re.S | re.M)
    return re.findall(r'^  ([a-z]+) ', found[1] + '\n', re.M) if found else []


def write(path, text):
    with open(path, 'wb') as raw, gzip.GzipFile(filename='', mode='wb', fileobj=raw, mtime=0) as file:
        file.write(text.encode())


def main():
    stockade, stockaded, directory = sys.argv[1:]
    os.makedirs(directory, exist_ok=True)
    top = output(stockade, '--help')
    names = commands(top)
    if len(names) < 10:
        sys.exit(f'the help of stockade names {names} as its commands: has its form changed?')
    parts = [('synopsis', 'stockade COMMAND [OPTIONS]'), ('description', top)]
    parts += [(f'stockade {name}', output(stockade, name, '--help')) for name in names]
    version = output(stockade, '--version').split()[-1]
    write(os.path.join(directory, 'stockaded.8.gz'),
          page('stockaded', 8, 'the agent that binds sandboxes to their policies in the kernel',
               [('synopsis', 'stockaded [OPTIONS]'), ('description', output(stockaded, '--help'))]))
    write(os.path.join(directory, 'changelog.gz'),
          f'stockade ({version}) unstable; urgency=medium\n\n  * Built from this version of the sources.\n\n'
          ' -- Stockade maintainers <maintainers@stockade.dev>  Thu, 01 Jan 1970 00:00:00 +0000\n')
    for shell in SHELLS:
        with open(os.path.join(directory, f'stockade.{shell}'), 'w', encoding='utf-8') as file:
            file.write(output(stockade, 'completion', shell))
    # Last: it says that all is there.
    write(os.path.join(directory, 'stockade.1.gz'), page('stockade', 1, 'sandboxes that keep to their policy', parts))


if __name__ == '__main__':
    main()
