#include <arpa/inet.h>

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/policy/dns_names.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/parse_sections.h"
#include "userspace/policy/pattern.h"
#include "userspace/policy/prefix.h"

namespace stockade::policy {
namespace {

constexpr uint64_t kMaxPort = 65535;
// (uid_t)-1 is no user.
constexpr uint64_t kMaxUid = 0xfffffffe;
// sun_path, and an abstract name's leading NUL byte.
constexpr size_t kMaxUnixBytes = 107;

uint64_t Big(const uint8_t* bytes, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; ++i) value = value << 8 | bytes[i];
    return value;
}

// Fills family, words and bits of a bare address.
bool ReadAddress(const std::string& text, NetworkRule& rule) {
    uint8_t bytes[16] = {};
    if (inet_pton(AF_INET, text.c_str(), bytes) == 1) {
        rule.family = 4, rule.bits = 32, rule.hi = 0, rule.lo = Big(bytes, 4);
        return true;
    }
    if (inet_pton(AF_INET6, text.c_str(), bytes) != 1) return false;
    rule.family = 6, rule.bits = 128, rule.hi = Big(bytes, 8), rule.lo = Big(bytes + 8, 8);
    return true;
}

// The kernel judges ::ffff:a.b.c.d as a.b.c.d, so a rule for it must be one for IPv4.
void UnmapRule(NetworkRule& rule) {
    if (rule.family != 6 || rule.bits < 96 || rule.hi != 0 || rule.lo >> 32 != 0xffff) return;
    rule.family = 4;
    rule.bits = static_cast<uint8_t>(rule.bits - 96);
    rule.lo &= 0xffffffff;
}

std::optional<PortRange> ReadPorts(Reader& reader, const YamlNode& node, bool any_allowed) {
    std::optional<std::string> text = reader.Text(node, "a port");
    if (!text) return std::nullopt;
    if (any_allowed && *text == "any") return PortRange{0, 0};
    const std::vector<std::string> ends = absl::StrSplit(*text, absl::MaxSplits('-', 1));
    uint32_t first = 0, last = 0;
    const bool ok = absl::SimpleAtoi(ends.front(), &first) && absl::SimpleAtoi(ends.back(), &last) &&
                    first >= 1 && first <= last && last <= kMaxPort;
    if (!ok || (node.quoted && ends.size() == 1)) {
        reader.Error(node,
                     absl::StrCat("a port must be a number from 1 to 65535 or a range like 8000-8100, not '",
                                  Reader::Printable(*text), "'", node.quoted && ok ? " in quotes" : ""));
        return std::nullopt;
    }
    return PortRange{static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
}

void ReadPortList(Reader& reader, const YamlNode& node, absl::string_view what, std::vector<PortEntry>& out) {
    if (node.kind == YamlNode::Kind::kScalar) {
        return reader.Error(
            node, absl::StrCat(what, " must be a list; write [", Reader::Printable(node.value), "]"));
    }
    reader.List(node, what, [&](const YamlNode& item) {
        std::optional<PortRange> range = ReadPorts(reader, item, true);
        if (!range) return;
        for (const PortEntry& other : out) {
            if (other.ports.first <= range->last && range->first <= other.ports.last) {
                return reader.Error(item, absl::StrCat("this port stands twice in ", what, ", first on line ",
                                                       other.at.line));
            }
        }
        out.push_back({*range, reader.At(item)});
    });
}

void CheckUnix(Reader& reader, const YamlNode& node, NetworkRule& rule) {
    rule.abstract = rule.text.substr(0, 1) == "@";
    if (rule.abstract) {
        if (rule.text.size() < 2 || rule.text.size() > kMaxUnixBytes + 1)
            reader.Error(node, "an abstract socket's name has 1 to 107 bytes after the '@'");
        return;
    }
    StatusOr<PathPattern> pattern = ParsePattern(rule.text);
    if (!pattern.ok()) return reader.Error(node, Reader::Printable(pattern.status().message()));
    if (rule.text[0] != '/')
        return reader.Error(node, "a unix socket is an absolute path, or '@' and an abstract name");
    if (pattern->LiteralPrefix().size() > kMaxUnixBytes)
        reader.Error(node, "a unix socket's path has at most 107 bytes");
}

void ReadKind(Reader& reader, const YamlNode& node, NetworkKind kind, NetworkRule& rule, int& kinds) {
    static constexpr absl::string_view kWhat[] = {"a cidr", "a name", "a unix socket"};
    ++kinds;
    rule.kind = kind;
    std::optional<std::string> text = reader.Text(node, kWhat[static_cast<int>(kind)]);
    if (!text) return;
    const Position at = rule.at;
    rule.text = *text;
    if (kind == NetworkKind::kUnix) return CheckUnix(reader, node, rule);
    if (kind == NetworkKind::kName) {
        if (!IsDnsName(*text))
            reader.Error(node, absl::StrCat("bad name '", Reader::Printable(*text),
                                            "': a lower-case host name, or '*.' and one"));
        return;
    }
    StatusOr<NetworkRule> cidr = ParseCidr(*text);
    if (!cidr.ok()) return reader.Error(node, Reader::Printable(cidr.status().message()));
    std::vector<PortRange> ports = std::move(rule.ports);
    const bool tls_strict = rule.tls_strict;
    rule = *std::move(cidr);
    rule.ports = std::move(ports);
    rule.tls_strict = tls_strict;
    rule.at = at;
}

void ReadRule(Reader& reader, const YamlNode& node, bool of_uid, std::vector<NetworkRule>& out) {
    NetworkRule rule;
    rule.at = reader.At(node);
    int kinds = 0;
    bool has_ports = false, has_tls = false;
    const auto ports = [&](const YamlNode& v) {
        has_ports = true;
        const bool is_list = v.kind == YamlNode::Kind::kSequence;
        if (v.kind == YamlNode::Kind::kNull || (is_list && v.items.empty()))
            return reader.Error(v, "ports must not be empty; leave it out to allow any port");
        reader.List(v, "ports", [&](const YamlNode& item) {
            if (std::optional<PortRange> range = ReadPorts(reader, item, false)) rule.ports.push_back(*range);
        });
    };
    std::vector<Reader::Field> fields = {
        {"cidr", [&](const YamlNode& v) { ReadKind(reader, v, NetworkKind::kCidr, rule, kinds); }},
        {"ports", ports}};
    // Sockets have no uid of their own, and the address of a name is opened for every uid.
    if (!of_uid) {
        fields.push_back({"tls_name", [&](const YamlNode& v) {
                              has_tls = true;
                              rule.tls_strict = reader.Choice<bool>(v, "tls_name", {{"strict", true}, {"any", false}}).value_or(false);
                          }});
        fields.push_back(
            {"name", [&](const YamlNode& v) { ReadKind(reader, v, NetworkKind::kName, rule, kinds); }});
        fields.push_back(
            {"unix", [&](const YamlNode& v) { ReadKind(reader, v, NetworkKind::kUnix, rule, kinds); }});
    }
    const size_t before = reader.found();
    if (!reader.Map(node, "a network rule", fields)) return;
    // Half a rule is none: it would be taken for a copy of another, or found wrong once more.
    if (reader.found() != before) return;
    if (kinds != 1) {
        return reader.Error(node, kinds == 0 ? "a network rule needs one of cidr, name, unix"
                                             : "a network rule is one of cidr, name, unix; write two rules");
    }
    if (has_tls && rule.kind != NetworkKind::kName) return reader.Error(node, "tls_name needs a name; addresses have none");
    if (has_ports && rule.kind == NetworkKind::kUnix) return reader.Error(node, "a unix socket has no ports");
    for (const NetworkRule& other : out) {
        const bool same_ports = std::equal(
            other.ports.begin(), other.ports.end(), rule.ports.begin(), rule.ports.end(),
            [](const PortRange& a, const PortRange& b) { return a.first == b.first && a.last == b.last; });
        if (other.kind == rule.kind && other.text == rule.text && same_ports) {
            return reader.Error(node, absl::StrCat("the same rule stands on line ", other.at.line));
        }
    }
    out.push_back(std::move(rule));
}

void ReadUids(Reader& reader, const YamlNode& node, NetworkSection& section) {
    reader.FreeMap(node, "network.uids", [&](const YamlNode& key, const YamlNode& value) {
        // In JSON, and so in every object of an API server, a key cannot but be in quotes.
        YamlNode plain = key;
        plain.quoted = false;
        std::optional<uint64_t> uid = reader.Number(plain, "a uid", 0, kMaxUid);
        if (!uid) return;
        const auto id = static_cast<uint32_t>(*uid);
        section.uids_at[id] = reader.At(key);
        std::vector<NetworkRule>& rules = section.uids[id];
        reader.List(value, "the rules of a uid",
                    [&](const YamlNode& item) { ReadRule(reader, item, true, rules); });
    });
}

}  // namespace

StatusOr<NetworkRule> ParseCidr(absl::string_view text) {
    NetworkRule rule;
    const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
    uint32_t bits = 0;
    if (!ReadAddress(parts[0], rule) ||
        (parts.size() == 2 && (!absl::SimpleAtoi(parts[1], &bits) || bits > rule.bits))) {
        return absl::InvalidArgumentError(
            absl::StrCat("bad cidr '", text, "': an address like 10.0.0.0/8 or 2001:db8::/32"));
    }
    rule.text = std::string(text);
    if (parts.size() == 2) rule.bits = static_cast<uint8_t>(bits);
    const NetworkRule written = rule;
    MaskPrefix(rule.family, rule.bits, rule.hi, rule.lo);
    if (written.hi != rule.hi || written.lo != rule.lo) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", text, "' has address bits beyond its prefix; for the one address leave the '/",
                         bits, "' out"));
    }
    UnmapRule(rule);
    return rule;
}

StatusOr<AddressPort> ParseAddressPort(absl::string_view text) {
    AddressPort out;
    const size_t colon = text.rfind(':');
    uint32_t port = 0;
    if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
        port > kMaxPort) {
        return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not ADDRESS:PORT"));
    }
    absl::string_view address = text.substr(0, colon);
    if (address.size() > 2 && address.front() == '[' && address.back() == ']')
        address = address.substr(1, address.size() - 2);
    if (!ReadAddress(std::string(address), out.address)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "'", text, "' is not ADDRESS:PORT, with an address like 192.0.2.1 or [2001:db8::1]"));
    }
    UnmapRule(out.address);
    out.port = static_cast<uint16_t>(port);
    return out;
}

void ReadNetwork(Reader& reader, const YamlNode& node, NetworkSection& section) {
    section.at = reader.At(node);
    reader.Map(node, "network",
               {{"allow",
                 [&](const YamlNode& v) {
                     reader.List(v, "network.allow",
                                 [&](const YamlNode& item) { ReadRule(reader, item, false, section.allow); });
                 }},
                {"loopback",
                 [&](const YamlNode& v) { ReadPortList(reader, v, "network.loopback", section.loopback); }},
                {"host", [&](const YamlNode& v) { ReadPortList(reader, v, "network.host", section.host); }},
                {"bind", [&](const YamlNode& v) { ReadPortList(reader, v, "network.bind", section.bind); }},
                {"uids", [&](const YamlNode& v) { ReadUids(reader, v, section); }},
                {"violation", [&](const YamlNode& v) {
                     section.violation = reader.Choice(v, "violation", ViolationChoices());
                 }}});
}

}  // namespace stockade::policy
