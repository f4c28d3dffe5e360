#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/policy/dns_names.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/parse_sections.h"

namespace stockade::policy {
namespace {

void CheckObject(Reader& reader, const YamlNode& node, TestCase& test) {
    switch (test.kind) {
        case CaseKind::kExec:
        case CaseKind::kMap:
        case CaseKind::kRead:
        case CaseKind::kWrite:
            if (test.object.substr(0, 1) != "/") reader.Error(node, "a path in a test must be absolute");
            return;
        case CaseKind::kConnect: {
            Status status = ParseAddressPort(test.object).status();
            if (!status.ok()) reader.Error(node, Reader::Printable(status.message()));
            return;
        }
        case CaseKind::kUnix:
            if (test.object.substr(0, 1) != "/" && test.object.substr(0, 1) != "@")
                reader.Error(node, "a unix socket is an absolute path, or '@' and an abstract name");
            return;
        case CaseKind::kDns:
            if (!IsHostName(test.object)) reader.Error(node, "a name in a test is a lower-case host name");
            return;
        case CaseKind::kBind: {
            Status status = ParseAddressPort(test.object).status();
            if (!status.ok()) reader.Error(node, Reader::Printable(status.message()));
            return;
        }
    }
}

void ReadCase(Reader& reader, const YamlNode& node, bool expect_allowed, std::vector<TestCase>& out) {
    TestCase test;
    test.expect_allowed = expect_allowed;
    test.at = reader.At(node);
    int kinds = 0;
    std::vector<Reader::Field> fields;
    const std::pair<const char*, CaseKind> kKinds[] = {
        {"exec", CaseKind::kExec},   {"map", CaseKind::kMap},         {"read", CaseKind::kRead},
        {"write", CaseKind::kWrite}, {"connect", CaseKind::kConnect}, {"unix", CaseKind::kUnix},
        {"bind", CaseKind::kBind},   {"dns", CaseKind::kDns}};
    for (const auto& [key, kind] : kKinds) {
        fields.push_back({key, [&, kind = kind](const YamlNode& v) {
                              ++kinds;
                              test.kind = kind;
                              std::optional<std::string> text = reader.Text(v, "the object of a test");
                              if (!text) return;
                              test.object = *text;
                              CheckObject(reader, v, test);
                          }});
    }
    fields.push_back({"uid", [&](const YamlNode& v) {
                          std::optional<uint64_t> uid = reader.Number(v, "uid", 0, 0xfffffffe);
                          if (uid) test.uid = static_cast<uint32_t>(*uid);
                      }});
    if (!reader.Map(node, "a test", fields)) return;
    if (kinds != 1)
        return reader.Error(node, "a test has exactly one of exec, map, read, write, connect, unix, bind, dns");
    if (test.uid && test.kind != CaseKind::kConnect)
        return reader.Error(node, "uid matters for connect only");
    out.push_back(std::move(test));
}

}  // namespace

std::vector<Reader::Field> TestFields(Reader& reader, std::vector<TestCase>& cases) {
    const auto field = [&reader, &cases](std::string key, bool expect_allowed) -> Reader::Field {
        return {key, [&reader, &cases, key, expect_allowed](const YamlNode& v) {
                    reader.List(v, key,
                                [&](const YamlNode& item) { ReadCase(reader, item, expect_allowed, cases); });
                }};
    };
    return {field("allow", true), field("refuse", false)};
}

void ReadTests(Reader& reader, const YamlNode& node, std::vector<TestCase>& cases) {
    reader.Map(node, "tests", TestFields(reader, cases));
}

}  // namespace stockade::policy
