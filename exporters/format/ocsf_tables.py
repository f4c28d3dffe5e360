#!/usr/bin/python3
"""Makes data/ocsf-1.8.0.json, which the tests check our output by, from the published export of the OCSF schema.

    ocsf_tables.py EXPORT.json >data/ocsf-1.8.0.json

The export is what the schema's own server gives for a version ("export/schema"). Kept are the classes that we emit and the objects
that they lead to; of an attribute its type, whether it is an array or required, the profiles that it needs, and its enumeration.
"""

import json
import sys

CLASSES = ['base_event', 'process_activity', 'file_activity', 'network_activity', 'dns_activity', 'detection_finding',
           'remediation_activity', 'application_lifecycle', 'device_config_state_change']
# Objects that we fill; of the others an attribute keeps the name only, and a test that meets one fails.
OBJECTS = ['actor', 'process', 'process_entity', 'file', 'user', 'device', 'container', 'metadata', 'product', 'policy',
           'network_endpoint', 'network_connection_info', 'dns_query', 'finding_info', 'analytic', 'evidences', 'object']


def attributes(entry):
    out = {}
    for name, attribute in sorted(entry['attributes'].items()):
        row = {'type': attribute.get('object_type') or attribute['type']}
        if attribute['type'] == 'object_t':
            row['object'] = True
        if attribute.get('is_array'):
            row['array'] = True
        if attribute.get('requirement') == 'required':
            row['required'] = True
        if attribute.get('profiles'):
            row['profiles'] = attribute['profiles']
        if attribute.get('enum'):
            row['enum'] = {key: value['caption'] for key, value in sorted(attribute['enum'].items())}
        out[name] = row
    return out


def rows(entries, names):
    return {name: {**({'uid': entries[name]['uid'], 'profiles': entries[name]['profiles']} if 'uid' in entries[name] else {}),
                   'constraints': entries[name].get('constraints') or {}, 'attributes': attributes(entries[name])} for name in names}


def main():
    with open(sys.argv[1], encoding='utf-8') as file:
        schema = json.load(file)
    types = {name: {key: row[key] for key in ('type', 'regex', 'max_len', 'range') if key in row}
             for name, row in sorted(schema['dictionary']['types']['attributes'].items())}
    tables = {'version': schema['version'], 'license': 'Apache-2.0, Open Cybersecurity Schema Framework',
              'types': types, 'classes': rows(schema['classes'], CLASSES), 'objects': rows(schema['objects'], OBJECTS)}
    print('{')
    lines = []
    for key, value in tables.items():
        if isinstance(value, dict):
            inner = ',\n'.join(f'{json.dumps(name)}: {json.dumps(row, separators=(",", ":"))}' for name, row in value.items())
            lines.append(f'{json.dumps(key)}: {{\n{inner}\n}}')
        else:
            lines.append(f'{json.dumps(key)}: {json.dumps(value)}')
    print(',\n'.join(lines))
    print('}')


if __name__ == '__main__':
    main()
