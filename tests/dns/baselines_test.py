#!/usr/bin/env python3
"""The rules of baselines.py tell where their sources say, and it reads the recordings as the meter does."""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import baselines  # noqa: E402  (the path comes first)

ZONE = "zone.test"
SUNBURST = "sunburst/uniq-hostnames.txt"
SHORT = "tunnel-captures/iodine-TXT-short64.pcap"


def asked(names, gap=1.0, qtype=1):
    return [baselines.Query(i * gap, "client", f"{name}.{ZONE}", qtype) for i, name in enumerate(names)]


def first(rule, queries):
    """The place of the query that the rule tells at, from 1 on."""
    index = baselines.RULES[rule](queries, ZONE)
    return None if index is None else index + 1


class Rules(unittest.TestCase):
    def expect(self, rule, place, names, **how):
        queries = asked(names, **how)
        self.assertEqual(first(rule, queries), place)
        if place:
            self.assertIsNone(first(rule, queries[:place - 1]))

    def test_counts(self):
        names = [f"n{i}" for i in range(300)]
        self.expect("anomalous-dns: > 8 names in 60 min", 9, names)
        self.expect("Sigma: > 200 names in 15 min", 201, names)
        self.expect("RITA: 100 subdomains in 24 h", 100, names)

    def test_repeats_are_no_new_names(self):
        self.expect("anomalous-dns: > 8 names in 60 min", None, ["a", "b", "A"] * 100)

    def test_windows_slide(self):
        names = [f"n{i}" for i in range(300)]
        self.expect("anomalous-dns: > 8 names in 60 min", 9, names, gap=449)
        self.expect("anomalous-dns: > 8 names in 60 min", None, names, gap=450)
        self.expect("ibHH-style: > 512 B of subdomains in 2 min", None, [f"{i:063}" for i in range(300)], gap=15)
        self.expect("> 512 B of subdomains, for ever", 9, [f"{i:063}" for i in range(300)], gap=600)
        # A name that is asked again within the window stays in it.
        window = baselines.Window(10)
        self.assertEqual([window.add(time, "a", 1) for time in (0, 9, 18)], [1, 1, 1])
        self.assertEqual(window.add(18, "b", 1), 2)

    def test_bytes(self):
        self.expect("ibHH-style: > 512 B of subdomains in 2 min", 9, [f"{i:063}" for i in range(40)])
        self.expect("ibHH-style: > 1,024 B of subdomains in 2 min", 17, [f"{i:063}" for i in range(40)])

    def test_single_names(self):
        self.expect("Sigma: a name > 70 B", 2, ["x" * 60, "x" * 61])
        self.expect("anomalous-dns: a name > 90 B", 2, ["x" * 60 + "." + "y" * 19, "x" * 60 + "." + "y" * 20])
        self.expect("a subdomain of >= 24 characters, entropy > 3.5", 3, ["0123456789abcdefghijklm", "a" * 40, "0123456789abcdefghijklmn"])

    def test_types(self):
        rule = "Sigma: > 50 TXT or NULL in a minute"
        self.expect(rule, None, ["a"] * 300)
        self.expect(rule, 51, ["a"] * 300, qtype=16)
        self.expect(rule, None, ["a"] * 300, qtype=16, gap=1.3)


class Recordings(unittest.TestCase):
    """Beside the command itself, whose text is read here and whose JSON is read there."""

    @staticmethod
    def rows(path, *flags):
        """The pairs that the text shows as blocked."""
        out = subprocess.run([baselines.STOCKADE, "dns", "meter", path, *flags], stdout=subprocess.PIPE, check=False, text=True).stdout
        return [line.split() for line in out.splitlines() if line.startswith("block")]

    def test_figures_are_the_meters(self):
        found = baselines.figures(baselines.DATA, [], [SUNBURST, SHORT])
        ours = found["rows"][-1]
        self.assertEqual(ours["rule"], baselines.OURS)
        capacities = []
        for name in SUNBURST, SHORT:
            report = baselines.meter(os.path.join(baselines.DATA, name))
            self.assertTrue(self.rows(os.path.join(baselines.DATA, name)), name)
            capacities.append(report["summary"]["most_capacity_bytes"])
        self.assertEqual((ours["caught"], ours["caught_1_a_minute"], ours["caught_1_in_10_minutes"]), (2, 2, 2))
        self.assertEqual(ours["out_most_bytes"], max(capacities))
        self.assertEqual(ours["out_median_bytes"], sum(capacities) // 2)
        own = [word for zone in baselines.OWN_ZONES for word in ("--internal", zone)]
        benign = os.path.join(baselines.DATA, baselines.BENIGN)
        self.assertEqual(ours["benign_told"], len(self.rows(benign, *own)))
        self.assertEqual(found["benign_pairs"], baselines.meter(benign, *own)["summary"]["pairs"])
        # The tunnels are there for the others, too.
        self.assertEqual(next(row for row in found["rows"] if row["rule"].startswith("> 512 B"))["caught"], 2)

    def test_what_left_is_counted_alike(self):
        path = os.path.join(baselines.DATA, SUNBURST)
        report = baselines.meter(path)
        [pair] = report["pairs"]
        self.assertEqual(pair["let_through"], pair["first_dropped"] - 1)
        queries = baselines.pairs_of(baselines.read(path), report)[pair["client"], pair["zone"]]
        self.assertEqual(baselines.capacity(queries[:pair["let_through"]], pair["zone"]), pair["capacity_bytes"])

    def test_pairs_have_the_same_queries(self):
        for name in [*baselines.TUNNELS, baselines.BENIGN]:
            path = os.path.join(baselines.DATA, name)
            report = baselines.meter(path)
            pairs = baselines.pairs_of(baselines.read(path), report)
            # Names of services (with spaces) below .local are no host names, and the meter only counts that they were refused.
            differ = [(key, pair["queries"], len(pairs[key])) for pair in report["pairs"]
                      if pair["queries"] != len(pairs[key := (pair["client"], pair["zone"])]) and not key[1].endswith(".local")]
            self.assertEqual(differ, [], name)

    def test_the_table_has_a_row_for_each_rule(self):
        found = {"tunnels": 1, "benign_pairs": 2, "list_pairs": [], "rows": [
            {"rule": rule, "benign_told": 1, "lists_told": [], "caught": 1, "out_median_bytes": 5, "out_most_bytes": 6,
             "caught_1_a_minute": 1, "caught_1_in_10_minutes": 0, "out_most_bytes_1_in_10_minutes": 7} for rule in [*baselines.RULES, baselines.OURS]]}
        lines = list(baselines.table(json.loads(json.dumps(found))))
        self.assertEqual(len(lines), 2 + len(baselines.RULES) + 1)
        self.assertEqual(len({line.count("|") for line in lines}), 1)


if __name__ == "__main__":
    unittest.main()
