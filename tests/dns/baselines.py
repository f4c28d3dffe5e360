#!/usr/bin/env python3
"""Rules of other detectors, written anew from what their sources say, beside `stockade dns meter` over the same recordings.

    tests/dns/baselines.py                      the table of docs/dns.md
    tests/dns/baselines.py --names FILE         a list of harmless names as well
    tests/dns/baselines.py -o json              the figures

A rule looks at the queries of one client to one zone, in their order, and says at which it would have told. The zones are those that
the meter found, so that all are judged over the same pairs. Each rule is given the best case: it counts exactly (no sketch), its
window slides, and the query that makes it tell does not leave, though most of them are reports of a batch.
"""
import argparse
import collections
import gzip
import json
import math
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STOCKADE = os.path.join(os.environ.get("STOCKADE_BIN_DIR", os.path.join(ROOT, "build/dev/bin")), "stockade")
DATA = os.path.join(ROOT, "tests/data/dns")
TUNNELS = [f"tunnel-captures/{name}.pcap" for name in (
    "dns2tcp-KEY", "dns2tcp-TXT", "iodine-A", "iodine-CNAME", "iodine-MX", "iodine-NULL", "iodine-SRV", "iodine-TXT",
    "iodine-TXT-short64")] + ["sunburst/uniq-hostnames.txt"]
BENIGN = "benign/wrccdc-2018-zeek-dns.log.gz"
OWN_ZONES = ("wrccdc.org", "oompa.loompa")  # the site's, as its operator would name them
TXT, NULL = 16, 10
DAY = 86400

Query = collections.namedtuple("Query", "time client name type")


# --- recordings ----------------------------------------------------------------------------------------------------------------------

def question(message):
    """Name and type, or None. Bytes that no host name has stay as they are: tunnels use them."""
    if len(message) < 17 or message[2] & 0x80:
        return None
    at, labels = 12, []
    while at < len(message) and 0 < message[at] < 64:
        labels.append(message[at + 1:at + 1 + message[at]].decode("latin-1"))
        at += 1 + message[at]
    if at + 3 > len(message) or message[at]:
        return None
    return ".".join(labels), struct.unpack_from(">H", message, at + 1)[0]


def read_pcap(data):
    """UDP to port 53 over IPv4 over Ethernet, which is what the captures hold."""
    at = 24
    while at + 16 <= len(data):
        seconds, micros, size = struct.unpack_from("<III", data, at)
        frame = data[at + 16:at + 16 + size]
        at += 16 + size
        if frame[12:14] != b"\x08\x00" or frame[23] != 17:
            continue
        udp = 14 + (frame[14] & 15) * 4
        asked = question(frame[udp + 8:]) if frame[udp + 2:udp + 4] == b"\x00\x35" else None
        if asked:
            yield Query(seconds + micros / 1e6, ".".join(map(str, frame[26:30])), *asked)


def read_zeek(text):
    """Copies of one query (the same ports, id and name within two seconds) count once."""
    fields, last = [], {}
    for line in text.splitlines():
        if line.startswith("#fields"):
            fields = line.split("\t")[1:]
        if line.startswith("#") or not line:
            continue
        row = dict(zip(fields, line.split("\t")))
        if row["query"] == "-" or row["qtype"] == "-" or row["qclass"] != "1" or row["id.resp_p"] != "53":
            continue
        time, name = float(row["ts"]), row["query"].lower().replace("(empty)", "")
        key = (row["id.orig_h"], row["id.orig_p"], row["id.resp_h"], row["trans_id"], name, row["qtype"])
        if time - last.get(key, -9) < 2:
            continue
        last[key] = time
        yield Query(time, row["id.orig_h"], name, int(row["qtype"]))


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    if path.endswith(".gz"):
        data = gzip.decompress(data)
    if data[:4] == b"\xd4\xc3\xb2\xa1":
        return list(read_pcap(data))
    if data.startswith(b"#separator"):
        return list(read_zeek(data.decode("utf-8", "replace")))
    # A list has no times: the meter takes one name a second.
    return [Query(float(i), "-", name, 1) for i, name in enumerate(data.decode().split())]


def as_log(names):
    """A dns.log of clients that ask for a hundred of the names each, one a second: one client would be out of zones soon."""
    fields = "ts rtt id.orig_h id.orig_p id.resp_h id.resp_p trans_id query qtype qclass TTLs".split()
    rows = ["\t".join([f"{i}.0", "-", f"10.0.{i // 100 // 256}.{i // 100 % 256}", "1024", "192.0.2.53", "53", str(i % 65536), name, "1", "1", "-"])
            for i, name in enumerate(names)]
    return "\n".join(["#separator \\x09", "\t".join(["#fields", *fields]), *rows, ""])


def meter(path, *flags):
    """What `stockade dns meter` says. Exit status 1 is a recording with something to block."""
    ran = subprocess.run([STOCKADE, "dns", "meter", path, "-o", "json", *flags], stdout=subprocess.PIPE, check=False)
    if ran.returncode not in (0, 1):
        sys.exit(f"baselines: stockade dns meter {path}: exit {ran.returncode}")
    return json.loads(ran.stdout)


# --- rules ---------------------------------------------------------------------------------------------------------------------------

class Window:
    """Sum of weights of the different items of the last `seconds`."""

    def __init__(self, seconds):
        self.seconds, self.items, self.counts, self.sum = seconds, collections.deque(), collections.Counter(), 0

    def add(self, time, item, weight):
        while self.items and time - self.items[0][0] >= self.seconds:
            _, old, old_weight = self.items.popleft()
            self.counts[old] -= 1
            if not self.counts[old]:
                self.sum -= old_weight
        if not self.counts[item]:
            self.sum += weight
        self.counts[item] += 1
        self.items.append((time, item, weight))
        return self.sum


def more_than(limit, seconds, weight):
    def first(queries, zone):
        window = Window(seconds)
        for i, query in enumerate(queries):
            sub = subdomain(query.name, zone)
            if window.add(query.time, query.name.lower(), weight(sub)) > limit:
                return i
        return None
    return first


def any_name(test):
    return lambda queries, zone: next((i for i, q in enumerate(queries) if test(q.name)), None)


def any_subdomain(test):
    return lambda queries, zone: next((i for i, q in enumerate(queries) if test(subdomain(q.name, zone))), None)


def rare_types(limit, seconds):
    def first(queries, zone):
        window = Window(seconds)
        for i, query in enumerate(queries):
            if query.type in (TXT, NULL) and window.add(query.time, i, 1) > limit:
                return i
        return None
    return first


def entropy(text):
    return -sum(n / len(text) * math.log2(n / len(text)) for n in collections.Counter(text).values()) if text else 0


def one(_):
    return 1


RULES = {
    "anomalous-dns: > 8 names in 60 min": more_than(8, 3600, one),
    "anomalous-dns: a name > 90 B": any_name(lambda name: len(name) > 90),
    "Sigma: > 200 names in 15 min": more_than(200, 900, one),
    "Sigma: a name > 70 B": any_name(lambda name: len(name) > 70),
    "Sigma: > 50 TXT or NULL in a minute": rare_types(50, 60),
    "RITA: 100 subdomains in 24 h": more_than(99, DAY, one),
    "ibHH-style: > 1,024 B of subdomains in 2 min": more_than(1024, 120, len),
    "ibHH-style: > 512 B of subdomains in 2 min": more_than(512, 120, len),
    "a subdomain of >= 24 characters, entropy > 3.5": any_subdomain(lambda sub: len(sub) >= 24 and entropy(sub) > 3.5),
    "> 512 B of subdomains, for ever": more_than(512, math.inf, len),
}
OURS = "stockade dns meter"
# What a rule's own allow list would hold: zones of the site, of look-ups of addresses, of providers' infrastructure.
EXEMPT = ("internal", "reverse", "provider")


# --- pairs ---------------------------------------------------------------------------------------------------------------------------

def subdomain(name, zone):
    return name[:max(0, len(name) - len(zone) - 1)]


def pairs_of(queries, report):
    """(client, zone) -> its queries, by the longest of the client's zones in the meter's report."""
    zones = collections.defaultdict(set)
    for pair in report["pairs"]:
        zones[pair["client"]].add(pair["zone"])
    pairs = {(pair["client"], pair["zone"]): [] for pair in report["pairs"]}
    for query in queries:
        labels = query.name.lower().rstrip(".").split(".")
        for zone in [".".join(labels[i:]) for i in range(len(labels))] + ["."]:
            if zone in zones[query.client]:
                pairs[query.client, zone].append(query)
                break
    return pairs


def alphabet_bits(label):
    if label != label.lower() and label != label.upper():
        bits = 6
    elif re.fullmatch("[0-9]+", label):
        bits = 54 / 16
    elif re.fullmatch("[0-9a-fA-F]+", label):
        bits = 4
    elif re.fullmatch("[a-zA-Z2-7]+", label):
        bits = 5
    else:
        bits = 84 / 16
    return bits if label.isascii() else 7  # iodine's base 128


def capacity(queries, zone):
    """Bytes: new labels, times the bits of their smallest usual alphabet. As the meter counts what it lets through."""
    labels = {label for query in queries for label in subdomain(query.name, zone).split(".")}
    return math.ceil(sum(len(label) * alphabet_bits(label) for label in labels) / 8)


def respaced(queries, seconds):
    return [query._replace(time=i * seconds) for i, query in enumerate(queries)]


# --- table ---------------------------------------------------------------------------------------------------------------------------

def judge_tunnel(path, gap):
    """name -> (caught, bytes out). `gap`: seconds between queries, None = as recorded."""
    report = meter(path, *([] if gap is None else ["--fast-forward", f"{gap}s"]))
    queries = read(path)
    outcome = {}
    [(_, zone)] = pairs = pairs_of(queries, report)
    asked = next(iter(pairs.values()))
    if gap is not None:
        asked = respaced(asked, gap)
    for name, rule in RULES.items():
        first = rule(asked, zone)
        outcome[name] = (first is not None, capacity(asked[:first], zone))
    [ours] = report["pairs"]
    outcome[OURS] = (ours["verdict"] == "block", ours["capacity_bytes"])
    return outcome


def judge_benign(path, *flags):
    """name -> pairs that it tells of, and how many pairs there are."""
    report = meter(path, *flags)
    pairs = pairs_of(read(path), report)
    exempt = {(pair["client"], pair["zone"]) for pair in report["pairs"] if pair["tier"] in EXEMPT}
    told = {name: sum(rule(asked, key[1]) is not None for key, asked in pairs.items() if key not in exempt) for name, rule in RULES.items()}
    told[OURS] = sum(pair["verdict"] == "block" for pair in report["pairs"])
    return told, len(report["pairs"])


def figures(data, names, tunnels=None):
    files = [os.path.join(data, name) for name in tunnels or TUNNELS]
    runs = {gap: [judge_tunnel(path, gap) for path in files] for gap in (None, 60, 600)}
    own = [word for zone in OWN_ZONES for word in ("--internal", zone)]
    benign, pairs = judge_benign(os.path.join(data, BENIGN), *own)
    lists = []
    for path in names:
        with tempfile.NamedTemporaryFile("w", suffix=".log") as log, open(path, encoding="utf-8") as file:
            log.write(as_log(file.read().split()))
            log.flush()
            lists.append(judge_benign(log.name))
    rows = []
    for name in [*RULES, OURS]:
        out = [run[name][1] for run in runs[None]]
        rows.append({
            "rule": name,
            "benign_told": benign[name],
            "lists_told": [told[name] for told, _ in lists],
            "caught": sum(run[name][0] for run in runs[None]),
            "out_median_bytes": int(statistics.median(out)),
            "out_most_bytes": max(out),
            "caught_1_a_minute": sum(run[name][0] for run in runs[60]),
            "caught_1_in_10_minutes": sum(run[name][0] for run in runs[600]),
            "out_most_bytes_1_in_10_minutes": max(run[name][1] for run in runs[600]),
        })
    return {"tunnels": len(files), "benign_pairs": pairs, "list_pairs": [pairs for _, pairs in lists], "rows": rows}


def table(found):
    yield (f"| rule | harmless pairs told of, of {found['benign_pairs']:,} | tunnels caught, of {found['tunnels']} | bytes out, median / most | "
           "caught at 1 query/min | at 1 query/10 min | bytes out then, most |")
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in found["rows"]:
        share = 100 * row["benign_told"] / found["benign_pairs"]
        name = f"**{row['rule']}**" if row["rule"] == OURS else row["rule"]
        yield (f"| {name} | {row['benign_told']} ({share:.2f} %) | {row['caught']} | {row['out_median_bytes']:,} / {row['out_most_bytes']:,} | "
               f"{row['caught_1_a_minute']} | {row['caught_1_in_10_minutes']} | {row['out_most_bytes_1_in_10_minutes']:,} |")
    for i, pairs in enumerate(found["list_pairs"]):
        told = {row["rule"]: row["lists_told"][i] for row in found["rows"] if row["lists_told"][i]}
        yield f"\nOf the {pairs:,} pairs of list {i + 1}: {told or 'none told of'}"


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--data", default=DATA, help="a folder like tests/data/dns")
    flags.add_argument("--names", action="append", default=[], help="a list of harmless names, one a line")
    flags.add_argument("-o", "--output", choices=("table", "json"), default="table")
    args = flags.parse_args()
    found = figures(args.data, args.names)
    print(json.dumps(found, indent=1) if args.output == "json" else "\n".join(table(found)))


if __name__ == "__main__":
    main()
