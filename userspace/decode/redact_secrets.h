// Secrets of each kind for the tests that plant them. Made up: each has the shape that its issuer
// documents, and opens nothing. Put together at run time, so that scanners of source trees pass over them.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stockade::decode {

struct PlantedSecret {
    std::string pattern;  // that must be named
    std::string text;     // as it stands in an argument
    std::string secret;   // that must be nowhere
};

inline std::vector<PlantedSecret> PlantedSecrets() {
    const std::string hex32 = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";
    const std::string mixed = "q7Zt2Lw9Xc4Vb8Nm1Kj6Hg3Fd5Sa0PoIuYt";
    std::vector<PlantedSecret> out;
    const auto token = [&](const char* pattern, const std::string& secret) {
        out.push_back({pattern, secret, secret});
    };
    const auto within = [&](const char* pattern, const std::string& before, const std::string& secret,
                            const std::string& after) {
        out.push_back({pattern, absl::StrCat(before, secret, after), secret});
    };
    token("aws-access-key", absl::StrCat("AKI", "AQ3EGPLMN7XWTZ4VB"));
    token("github-token", absl::StrCat("gh", "p_", mixed));
    token("github-token", absl::StrCat("github", "_pat_", mixed));
    token("gitlab-token", absl::StrCat("glp", "at-", mixed.substr(0, 20)));
    token("slack-token", absl::StrCat("xo", "xb-123456789012-", mixed.substr(0, 24)));
    within("slack-webhook", "https://hooks.slack.com/services/",
           absl::StrCat("T0", "Q1W2E3/B0Q9W8E7/", mixed.substr(0, 24)), "");
    within("discord-webhook", "https://discord.com/api/webhooks/", absl::StrCat("112233445566778899/", mixed),
           "");
    token("telegram-token", absl::StrCat("1234567890:A", "A", mixed));
    token("google-api-key", absl::StrCat("AI", "za", mixed));
    token("google-oauth", absl::StrCat("ya2", "9.", mixed));
    token("stripe-key", absl::StrCat("sk_", "live_", mixed.substr(0, 24)));
    token("model-api-key", absl::StrCat("sk-", "proj-", mixed));
    token("model-api-key", absl::StrCat("sk-", "ant-api03-", mixed));
    token("npm-token", absl::StrCat("np", "m_", mixed));
    token("pypi-token", absl::StrCat("pypi-", "AgEIcHlwaS5vcmc", mixed));
    token("rubygems-key", absl::StrCat("rubygems", "_", hex32));
    token("hugging-face-token", absl::StrCat("h", "f_", mixed));
    token("docker-token", absl::StrCat("dckr", "_pat_", mixed));
    token("vault-token", absl::StrCat("hv", "s.", mixed));
    token("digitalocean-token", absl::StrCat("do", "p_v1_", hex32, hex32));
    token("databricks-token", absl::StrCat("da", "pi", hex32));
    token("sendgrid-key", absl::StrCat("S", "G.", mixed.substr(0, 22), ".", mixed, mixed.substr(0, 8)));
    token("twilio-key", absl::StrCat("S", "K", hex32));
    token("mailgun-key", absl::StrCat("ke", "y-", hex32));
    token("shopify-token", absl::StrCat("shp", "at_", hex32));
    token("grafana-token", absl::StrCat("gls", "a_", mixed, "_0f1e2d3c"));
    token("sentry-token", absl::StrCat("sntr", "ys_", mixed));
    token("linear-key", absl::StrCat("lin", "_api_", mixed));
    token("age-key", absl::StrCat("AGE-SECRET-", "KEY-1", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"));
    token("jwt", absl::StrCat("ey", "JhbGciOiJIUzI1NiJ9.", "eyJzdWIiOiJhZ2VudCJ9.", mixed));
    within("url-password", "postgres://app:", "tr0ub4dor-3", "@db.internal/app");
    within("url-token", "https://", mixed, "@git.internal/x.git");
    within("signed-url", "https://bucket/x?X-Amz-Signature=", hex32, "&X-Amz-Date=1");
    within("azure-key", "DefaultEndpointsProtocol=https;AccountKey=", absl::StrCat(mixed, "=="), ";x=1");
    within("authorization", "Authorization: Basic ", "YWdlbnQ6aHVudGVyMg==", "");
    within("bearer", "bearer ", mixed, "");
    within("key-header", "X-Api-Key: ", mixed, "");
    within("json-member", "{\"db_password\": \"", "correct horse", "\"}");
    within("option", "--client-secret=", "hunter2hunter2", "");
    within("variable", "env DB_PASSWORD=", "hunter2hunter2", " make");
    return out;
}

}  // namespace stockade::decode
