"""Rule files that our parser and pySigma's are both asked about, and the differences that are meant."""

LOGSOURCE = 'logsource: {product: linux, category: process_creation}\n'
RULE = ('title: T\nid: 11111111-1111-4111-8111-111111111111\nstatus: test\n' + LOGSOURCE +
        'detection:\n  s:\n    Image: x\n  condition: s\n')


def _named(number, name):
    uuid = '%d' % number * 8 + '-2222-4222-8222-222222222222'
    return 'title: %s\nid: %s\nname: %s\n%sdetection:\n  s: {Image: x}\n  condition: s\n---\n' % (name, uuid, name, LOGSOURCE)


BASE = _named(2, 'p') + _named(3, 'q')

MODIFIERS = '''contains startswith endswith all cased exists neq re re|i re|m re|s re|i|m base64 base64offset utf16 utf16le utf16be wide
windash lt lte gt gte cidr fieldref minute hour day week month year expand bogus re|x contains|all contains|cased contains|neq
base64offset|contains wide|base64offset|contains utf16le|base64 windash|contains|all fieldref|neq fieldref|startswith re|contains
contains|re all|contains lt|all exists|contains cidr|contains contains|contains contains|startswith hour|gte base64|base64'''.split()
VALUES = ["'10.0.0.0/8'", '5', '[a, b]', 'true', 'null', "''"]

CONDITIONS = ['s', 'not s', 's and s', 's or not s', '(s)', '1 of s', '1 of s*', 'all of s*', 'any of s*', '1 of them', 'all of them',
              'any of them', '2 of them', '1 of x*', 's and', 'and s', '(s', 's)', 'x', 'not', '', 's s', '1 of', 'all of',
              's | count() > 5', 's near t', 'NOT s', 's AND s', '1 OF them', 's and not (s or s)', '[s, s]', 'them', '_s', '1 of _*',
              'all of s or s', 'not 1 of s*', 'not not s', '*', 's*']

# What takes the place of a part of RULE.
RULES = {
    'no title': ('title: T\n', ''), 'title is a list': ('title: T\n', 'title: [T]\n'), 'title is empty': ('title: T\n', 'title: ""\n'),
    'no id': ('id: 11111111-1111-4111-8111-111111111111\n', ''),
    'id is no UUID': ('id: 11111111-1111-4111-8111-111111111111\n', 'id: abc\n'),
    'status is none': ('status: test\n', 'status: fine\n'), 'status': ('status: test\n', 'status: stable\n'),
    'level is none': ('status: test\n', 'level: enormous\n'), 'level': ('status: test\n', 'level: critical\n'),
    'no logsource': (LOGSOURCE, ''), 'logsource is a text': (LOGSOURCE, 'logsource: linux\n'), 'logsource is empty': (LOGSOURCE, 'logsource: {}\n'),
    'no condition': ('  condition: s\n', ''), 'no identifiers': ('  s:\n    Image: x\n', ''),
    'detection is a list': (RULE[RULE.index('detection'):], 'detection: [s]\n'),
    'tags are a text': ('status: test\n', 'tags: attack.t1000\n'), 'a tag without namespace': ('status: test\n', 'tags: [notag]\n'),
    'tags': ('status: test\n', 'tags: [attack.t1000]\n'), 'date': ('status: test\n', 'date: 2024-01-31\n'),
    'a day that is none': ('status: test\n', 'date: 2024-02-30\n'), 'a German date': ('status: test\n', 'date: 31.1.2024\n'), 'a date with slashes': ('status: test\n', 'date: 2024/01/31\n'),
    'references are a text': ('status: test\n', 'references: a\n'), 'falsepositives': ('status: test\n', 'falsepositives: [x]\n'),
    'fields': ('status: test\n', 'fields: [Image]\n'), 'scope': ('status: test\n', 'scope: [server]\n'),
    'related': ('status: test\n', 'related: [{id: 22222222-2222-4222-8222-222222222222, type: derived}]\n'),
    'related in no known way': ('status: test\n', 'related: [{id: 22222222-2222-4222-8222-222222222222, type: cousin}]\n'),
    'author': ('status: test\n', 'author: me\n'), 'author is a list': ('status: test\n', 'author: [me]\n'),
    'description is a list': ('status: test\n', 'description: [a]\n'), 'license': ('status: test\n', 'license: MIT\n'),
    'taxonomy': ('status: test\n', 'taxonomy: sigma\n'), 'a key of its own': ('status: test\n', 'x-mine: 1\n'),
    'a key twice': ('status: test\n', 'status: test\nstatus: test\n'), 'a tab': ('    Image: x\n', '\tImage: x\n'),
    'a list of maps': ('    Image: x\n', '    - Image: x\n    - CommandLine: y\n'), 'keywords': ('s:\n    Image: x\n', 's: [a, b]\n'),
    'a keyword': ('s:\n    Image: x\n', 's: a\n'), 'a number as keyword': ('s:\n    Image: x\n', 's: 5\n'),
    'all keywords': ('    Image: x\n', "    '|all': [a, b]\n"), 'an empty map': ('s:\n    Image: x\n', 's: {}\n'),
    'an empty list': ('s:\n    Image: x\n', 's: []\n'), 'nothing': ('s:\n    Image: x\n', 's:\n'),
    'a map as value': ('Image: x', 'Image: {a: b}'), 'a list in a list': ('Image: x', 'Image: [[a]]'),
    'no values': ('Image: x', 'Image: []'), 'null among values': ('Image: x', 'Image: [a, null]'),
    'a text beside a map': ('s:\n    Image: x\n', 's: [a, {Image: x}]\n'),
    'two conditions': ('condition: s', 'condition: [s, s]'), 'a map as condition': ('condition: s', 'condition: {a: s}'),
    'a number as condition': ('condition: s', 'condition: 5'),
    'an open group': ('Image: x', "Image|re: '('"), 'look-ahead': ('Image: x', "Image|re: '(?=a)b'"),
    'a named group': ('Image: x', "Image|re: '(?P<n>a)'"), 'bits of the host': ('Image: x', 'Image|cidr: 10.0.0.1/8'),
    'too many bits': ('Image: x', 'Image|cidr: 10.0.0.0/99'), 'IPv6': ('Image: x', "Image|cidr: '2001:db8::/32'"),
    'no bits': ('Image: x', 'Image|cidr: 10.0.0.1'), 'wildcards': ('Image: x', "Image: 'a*b?'"),
    'escapes': ('Image: x', "Image: 'a\\*b\\\\c'"),
}

COUNT = ['type: event_count', 'rules: [p]', 'timespan: 5m', 'condition: {gte: 2}']


def _count(**changes):
    """COUNT with other lines, or without: None."""
    lines = dict(line.split(': ', 1) for line in COUNT)
    lines.update({key.replace('_', '-'): value for key, value in changes.items()})
    return ['%s: %s' % line for line in lines.items() if line[1] is not None]


CORRELATIONS = {
    'count': COUNT, 'groups': _count(group_by='[User]'), 'one group as text': _count(group_by='User'),
    'by id': _count(rules='[22222222-2222-4222-8222-222222222222]'), 'rule as text': _count(rules='p'),
    'no such rule': _count(rules='[nope]'), 'no rules': _count(rules='[]'), 'rules missing': _count(rules=None),
    'type missing': _count(type=None), 'type unknown': _count(type='event_sum'), 'timespan missing': _count(timespan=None),
    'timespan of no unit': _count(timespan='5'), 'timespan of an unknown unit': _count(timespan='5x'), 'seconds': _count(timespan='30s'),
    'months': _count(timespan='1M'), 'no time': _count(timespan='0s'), 'condition missing': _count(condition=None),
    'a range': _count(condition='{gte: 2, lte: 5}'), 'a word as number': _count(condition='{gte: two}'),
    'an unknown comparison': _count(condition='{ge: 2}'), 'eq': _count(condition='{eq: 2}'), 'neq': _count(condition='{neq: 2}'),
    'generate': COUNT + ['generate: true'], 'generate is a word': COUNT + ['generate: maybe'],
    'temporal': _count(type='temporal', rules='[p, q]', condition=None), 'temporal of a number': _count(type='temporal', rules='[p, q]'),
    'temporal ordered': _count(type='temporal_ordered', rules='[p, q]', condition=None),
    'temporal of one rule': _count(type='temporal', condition=None),
    'temporal in words': _count(type='temporal', rules='[p, q]', condition='p and q'),
    'temporal_extended': _count(type='temporal_extended', rules='[p, q]', condition='p and q'),
    'aliases': _count(type='temporal', rules='[p, q]', group_by='[who]', aliases='{who: {p: User, q: ProcessId}}', condition=None),
    'aliases of others': _count(type='temporal', rules='[p, q]', group_by='[who]', aliases='{who: {z: User, q: ProcessId}}', condition=None),
    'aliases are a list': _count(type='temporal', rules='[p, q]', aliases='[who]', condition=None),
}
for _type in ('value_count', 'value_sum', 'value_avg', 'value_percentile', 'value_median'):
    for _what, _condition in (('', '{field: ProcessId, gt: 2}'), (' of 90 percent', '{field: ProcessId, percentile: 90, gt: 2}'),
                              (' of no field', '{gt: 2}'), (' of a list', '{field: [User, Image], gt: 2}')):
        CORRELATIONS[_type + _what] = _count(type=_type, condition=_condition)

FILTERS = {
    'plain': ['rules: [p]', 'f: {Image: y}', 'condition: not f'], 'no rules': ['f: {Image: y}', 'condition: not f'],
    'by id': ['rules: [22222222-2222-4222-8222-222222222222]', 'f: {Image: y}', 'condition: not f'],
    'any': ['rules: any', 'f: {Image: y}', 'condition: not f'], 'no condition': ['rules: [p]', 'f: {Image: y}'],
    'no such identifier': ['rules: [p]', 'f: {Image: y}', 'condition: not g'], 'empty': ['rules: [p]', 'condition: not f'],
}


def cases():
    """Name -> text of a file."""
    out = {'%s: %s' % (m, v): RULE.replace('Image: x', 'Image|%s: %s' % (m, v)) for m in MODIFIERS for v in VALUES}
    out.update({'condition: ' + c: RULE.replace('condition: s', 'condition: ' + c) for c in CONDITIONS})
    for name, (old, new) in RULES.items():
        assert old in RULE, name
        out['rule: ' + name] = RULE.replace(old, new)
    head = 'title: C\nid: 44444444-4444-4444-8444-444444444444\ncorrelation:\n  '
    out.update({'correlation: ' + n: BASE + head + '\n  '.join(b) + '\n' for n, b in CORRELATIONS.items()})
    head = 'title: F\n' + LOGSOURCE + 'filter:\n  '
    out.update({'filter: ' + n: BASE + head + '\n  '.join(b) + '\n' for n, b in FILTERS.items()})
    return out


# We refuse, pySigma does not. Of our message; each is a rule that would not do what it seems to say, or that we cannot answer.
STRICTER = [
    "modifier 'all' needs a list of at least two values", 'this condition can never hold', 'this condition holds for every event',
    "modifier 're' cannot be applied to (null|true or false)", "too short for 'base64offset'",
    "modifier '(utf16|utf16be|wide)' must be followed by 'base64' or 'base64offset'", 'unknown field .* of linux/process_creation',
    "modifier '(minute|hour|day|week|month|year)' needs a field that is a time", "modifier 'expand' is not supported",
    "modifier 'contains' after 're' changes nothing", "modifier '(contains|base64)' twice", 'a correlation of no rules',
    "timespan must be written .*, not '1M'", "condition lacks 'percentile'", "type 'value_median' is of a later Sigma",
    'conditions in words are of a later Sigma', "alias 'who' says nothing about rule 'p'", 'title is empty', "duplicate key 'status'",
    "'percentile' belongs to value_percentile", 'several fields can only be counted',
    'an empty search identifier', 'an empty list of values matches nothing', 'null cannot stand in a list of values',
]

# pySigma refuses, we do not. By name of the case, and why.
LAXER = {
    'rule: id is no UUID': 'an id is whatever names the rule, as the names of Falco rules are',
    'correlation: a range': 'the specification has ranges',
    "utf16le|base64: '10.0.0.0/8'": 'the specification has utf16le beside wide', 'utf16le|base64: [a, b]': 'the same', "utf16le|base64: ''": 'the same',
}
