"""NRI as a runtime speaks it: the trunk, ttRPC, and as much of protobuf as its messages need. Written from the formats, not from the agent."""

import struct

PLUGIN, RUNTIME = 1, 2
REQUEST, RESPONSE = 1, 2


def varint(value):
    out = b''
    while True:
        out += bytes([value & 0x7f | (0x80 if value > 0x7f else 0)])
        value >>= 7
        if not value:
            return out


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, value):
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def pairs(field, values):
    return b''.join(text(field, text(1, key) + text(2, value)) for key, value in values.items())


def fields(data):
    """{number: last value} of a message; numbers and bytes."""
    out, at = {}, 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = read()
        if tag & 7 == 0:
            out[tag >> 3] = read()
        else:
            assert tag & 7 == 2, f'wire type {tag & 7}'
            length = read()
            out[tag >> 3] = data[at:at + length]
            at += length
    return out


def pod(value):
    return text(1, value['id']) + text(2, value['name']) + text(3, value['uid']) + text(4, value['namespace']) + \
        pairs(5, value['labels']) + pairs(6, value['annotations'])


def container(value, state, exit_code=0):
    out = text(1, value['id']) + text(2, value['pod']['id']) + text(3, value['name']) + number(4, state) + text(11, text(5, value['cgroup']))
    out += b''.join(text(7, word) for word in value['command'])
    return out + (number(12, value['pid']) if value['pid'] else b'') + (number(17, exit_code) if exit_code else b'')


def message(stream, kind, data, flags=0):
    return struct.pack('>IIBB', len(data), stream, kind, flags) + data


def trunk(connection, payload):
    return struct.pack('>II', connection, len(payload)) + payload


def call(stream, method, payload):
    request = text(1, 'nri.pkg.api.v1alpha1.Plugin') + text(2, method) + text(3, payload)
    return trunk(PLUGIN, message(stream, REQUEST, request))
