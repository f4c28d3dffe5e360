#!/usr/bin/python3
"""Every metric and label that dashboard and alerts ask for is in a scrape: queries.py SCRAPE [MORE...]"""

import json
import os
import re
import sys

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Given by Prometheus itself.
SERVERS_OWN = {'up'}
SERVERS_LABELS = {'job', 'instance', 'le'}
SAMPLE = re.compile(r'^([a-zA-Z_:][\w:]*)(\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
METRIC = re.compile(r'\b((?:stockade|process)_\w+|up)\b(\{[^}]*\})?')
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPING = re.compile(r'\bby \(([^)]*)\)')


def scraped(files):
    """Name -> list of label sets."""
    found = {}
    for name in files:
        with open(name, encoding='utf-8') as file:
            for line in file:
                sample = SAMPLE.match(line.rstrip('\n'))
                if sample and not line.startswith('#'):
                    found.setdefault(sample[1], []).append(dict(LABEL.findall(sample[3] or '')))
    return found


def expressions():
    with open(os.path.join(ROOT, 'deploy', 'grafana', 'stockade.json'), encoding='utf-8') as file:
        dashboard = json.load(file)
    for panel in dashboard['panels']:
        for target in panel.get('targets', []):
            yield f'panel "{panel["title"]}"', target['expr']
    for variable in dashboard['templating']['list']:
        if variable['type'] == 'query':
            yield f'variable {variable["name"]}', variable['definition']
    with open(os.path.join(ROOT, 'deploy', 'prometheus', 'stockade.rules.yaml'), encoding='utf-8') as file:
        for alert in yaml.safe_load(file)['groups'][0]['rules']:
            yield alert['alert'], alert['expr']


def wrong(expression, found):
    names = METRIC.findall(expression)
    if not names:
        yield 'asks for no metric'
    known_labels = set(SERVERS_LABELS)
    for name, matchers in names:
        if name in SERVERS_OWN:
            continue
        if name not in found:
            yield f'{name} is in no scrape'
            continue
        rows = found[name]
        labels = set().union(*rows)
        known_labels |= labels
        for label, operator, value in MATCHER.findall(matchers):
            if label in SERVERS_LABELS:
                continue
            if label not in labels:
                yield f'{name} has no label {label}'
            elif operator == '=' and all(row.get(label) != value for row in rows):
                yield f'{name} has no {label}="{value}"'
            elif operator == '=~' and not any(re.fullmatch(value, row.get(label, '')) for row in rows):
                yield f'{name} has no {label} that matches {value}'
    for grouping in GROUPING.findall(expression):
        for label in filter(None, (part.strip() for part in grouping.split(','))):
            if label not in known_labels:
                yield f'groups by {label}, which none of its metrics has'


def main():
    found = scraped(sys.argv[1:])
    asked = list(expressions())
    faults = [f'{where}: {fault}\n    {expression}' for where, expression in asked for fault in wrong(expression, found)]
    if faults:
        sys.exit('\n'.join(faults))
    print(f'{len(asked)} queries find their metrics among {len(found)} names and {sum(map(len, found.values()))} series')


if __name__ == '__main__':
    main()
