#include "userspace/decode/redact_patterns.h"

namespace stockade::decode {

// Shapes are those that the issuers document. Where an issuer has a fixed length and the prefix is
// short, less than the length is no match; where the prefix is telling, a token that was cut at
// the end of an argument is one too.
#define TOKEN(shape) SK_REDACT_START "(?P<secret>" shape ")"

const std::vector<RedactPattern>& DefaultPatterns() {
    static const auto* const patterns = new std::vector<RedactPattern>{
        // By what stands before them. The more telling name first: what is replaced is not found again.
        {"azure-key", "(?:AccountKey|SharedAccessKey)=(?P<secret>[^\\s;'\"]+)"},
        // Apart from pw and pwd, as below: RE2 would take the p out of both, and no word would be left that a text must have.
        {"option", "^(?:--?)(?:[a-z0-9]+[-_])*" SK_REDACT_NAME "(?:[-_][a-z0-9]+)*=(?P<secret>.+)"},
        {"option", "^(?:--?)(?:[a-z0-9]+[-_])*(?:pw|pwd)(?:[-_][a-z0-9]+)*=(?P<secret>.+)"},
        {"variable", SK_REDACT_START "(?:[a-z0-9]+[-_])*" SK_REDACT_NAME "(?:[-_][a-z0-9]+)*="
                                     "(?P<secret>\"[^\"]*\"?|'[^']*'?|[^\\s&;'\"]+)"},
        {"variable", SK_REDACT_START "(?:[a-z0-9]+[-_])*(?:pw|pwd)=(?P<secret>[^\\s&;/'\"][^\\s&;'\"]*)"},
        {"json-member", "[\"'](?:[a-z0-9]+[-_])*" SK_REDACT_NAME "[\"']\\s*:\\s*[\"'](?P<secret>[^\"']+)"},
        {"authorization", "authorization:\\s*(?:[a-z]+\\s+)?(?P<secret>[^\\s'\"]+)"},
        {"bearer", SK_REDACT_START "bearer\\s+(?P<secret>[^\\s'\"]+)"},
        {"cookie", SK_REDACT_START "(?:set-)?cookie:\\s*(?P<secret>[^'\"]+)"},
        // x-+ for x-: a word "x-" would be in every path with linux-gnu.
        {"key-header", SK_REDACT_START
         "(?:x-+[a-z-]*(?:key|token|secret)|private-token|job-token|api-key):\\s*(?P<secret>[^\\s'\"]+)"},
        {"url-password", "[a-z][a-z0-9+.-]*://[^/\\s:@]*:(?P<secret>[^/\\s@]+)@"},
        {"url-token", "https?://(?P<secret>[^/\\s:@]{16,})@"},
        {"signed-url",
         "[?&;](?:sig|signature|x-amz-(?:signature|credential|security-token)|x-goog-(?:signature|credential)"
         "|"
         "code|key|access_token|id_token|refresh_token)=(?P<secret>[^\\s&;'\"]{8,})"},
        {"netrc", SK_REDACT_START "machine\\s+\\S+\\s+login\\s+\\S+\\s+password\\s+(?P<secret>\\S+)"},
        // Keys as text.
        {"private-key", "(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*"},
        {"putty-key", "(?s)PuTTY-User-Key-File-[0-9].*"},
        {"age-key", "AGE-SECRET-KEY-1[0-9A-Z]{16,}"},
        // Tokens by their shape.
        {"jwt", "(?-i:" TOKEN("eyJ[A-Za-z0-9_-]{8,}\\.[A-Za-z0-9_-]+(?:\\.[A-Za-z0-9_-]*)?") ")"},
        {"jwt", TOKEN("eyj[a-z0-9_-]{14,}\\.[a-z0-9_-]{8,}(?:\\.[a-z0-9_-]*)?")},
        {"aws-access-key", "(?-i:" TOKEN("(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{8,}") ")"},
        {"aws-access-key", TOKEN("(?:akia|asia)[a-z2-7]{16}") "(?:$|[^0-9a-z])"},
        {"github-token", TOKEN("(?:gh[pousr]_[A-Za-z0-9]{12,}|github_pat_[A-Za-z0-9_]{12,})")},
        {"gitlab-token", TOKEN("gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|imt|oas)-[A-Za-z0-9_-]{12,}")},
        {"slack-token", TOKEN("(?:xox[abeprs]|xapp)-[A-Za-z0-9-]{10,}")},
        {"slack-webhook", "hooks\\.slack\\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9/_-]{8,})"},
        {"discord-webhook", "discord(?:app)?\\.com/api/webhooks/(?P<secret>[0-9]+/[A-Za-z0-9_-]{8,})"},
        {"telegram-token", SK_REDACT_START "(?:bot)?(?P<secret>[0-9]{8,10}:AA[A-Za-z0-9_-]{20,})"},
        {"google-api-key", TOKEN("AIza[A-Za-z0-9_-]{20,}")},
        {"google-oauth", TOKEN("(?:ya29\\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{12,})")},
        {"stripe-key", TOKEN("(?:(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9]{16,})")},
        {"model-api-key", TOKEN("(?:sk-(?:proj|ant|svcacct|admin|or|lf)-[A-Za-z0-9_-]{12,}|sk-[A-Za-z0-9]{20,"
                                "}|gsk_[A-Za-z0-9]{20,}|"
                                "xai-[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,})")},
        {"npm-token", TOKEN("npm_[A-Za-z0-9]{12,}")},
        {"pypi-token", TOKEN("pypi-AgE[A-Za-z0-9_-]{12,}")},
        {"rubygems-key", TOKEN("rubygems_[0-9a-f]{16,}")},
        {"hugging-face-token", TOKEN("hf_[A-Za-z0-9]{12,}")},
        {"docker-token", TOKEN("dckr_pat_[A-Za-z0-9_-]{12,}")},
        {"vault-token", TOKEN("hv[sbr]\\.[A-Za-z0-9_-]{24,}")},
        {"terraform-token", TOKEN("[A-Za-z0-9]{14}\\.atlasv1\\.[A-Za-z0-9_-]{16,}")},
        {"digitalocean-token", TOKEN("do[opr]_v1_[0-9a-f]{16,}")},
        {"databricks-token", TOKEN("dapi[0-9a-f]{32}")},
        {"sendgrid-key", TOKEN("SG\\.[A-Za-z0-9_-]{22}(?:\\.[A-Za-z0-9_-]*)?")},
        {"twilio-key", TOKEN("SK[0-9a-f]{32}")},
        {"mailgun-key", TOKEN("key-[0-9a-f]{32}")},
        {"shopify-token", TOKEN("shp(?:at|ca|pa|ss)_[0-9a-f]{16,}")},
        {"grafana-token", TOKEN("gl(?:sa|c)_[A-Za-z0-9_+/=-]{20,}")},
        {"new-relic-key", TOKEN("NRAK-[A-Z0-9]{20,}")},
        {"sentry-token", TOKEN("sntry[su]_[A-Za-z0-9_=/+-]{20,}")},
        {"postman-key", TOKEN("PMAK-[0-9a-f]{16,}-[0-9a-f]*")},
        {"linear-key", TOKEN("lin_(?:api|oauth)_[A-Za-z0-9]{16,}")},
    };
    return *patterns;
}

}  // namespace stockade::decode
