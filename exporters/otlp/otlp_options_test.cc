#include "exporters/otlp/otlp_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "exporters/otlp/otlp.h"

namespace stockade::exporters {
namespace {

constexpr char kHttp[] = "http://127.0.0.1:4318/v1/logs", kHttps[] = "https://collector/v1/logs";

std::string ErrorOf(const ExporterOptions& options) {
    return std::string(ParseOtlpOptions(options).status().message());
}

TEST(OtlpOptions, WrongOnesAreNamed) {
    const struct {
        ExporterOptions options;
        const char* error;
    } rows[] = {
        {{}, "endpoint is missing"},
        {{{"endpoint", "collector:4318"}}, "begins with http:// or https://"},
        {{{"endpoint", "ftp://h/x"}}, "begins with http:// or https://"},
        {{{"endpoint", "http:///x"}}, "no host"},
        {{{"endpoint", "http://h:4318"}}, "no path"},
        {{{"endpoint", "http://user:word@h/x"}}, "use headersfile"},
        {{{"endpoint", "http://h/x y"}}, "no URL has"},
        {{{"endpoint", kHttp}, {"endpiont", "x"}}, "no option \"endpiont\"; there are"},
        {{{"endpoint", kHttp}, {"format", "xml"}}, "json and ocsf"},
        {{{"endpoint", kHttp}, {"cacertfile", "/x"}}, "would be left unused"},
        {{{"endpoint", kHttps}, {"certfile", "/x"}}, "go together"},
        {{{"endpoint", kHttps}, {"cacertfile", "/no/such/file"}}, "cacertfile"},
        {{{"endpoint", kHttp}, {"headersfile", "/no/such/file"}}, "headersfile"},
        {{{"endpoint", kHttp}, {"timeoutms", "5"}}, "timeoutms is 100 to"},
        {{{"endpoint", kHttp}, {"batchbytes", "1"}}, "batchbytes is 4096 to"},
    };
    for (const auto& row : rows) EXPECT_THAT(ErrorOf(row.options), testing::HasSubstr(row.error));
    EXPECT_TRUE(MakeOtlp({{"endpoint", kHttp}}).ok()) << "the control; nobody need be there";
    EXPECT_THAT(ErrorOf({{"endpoint", kHttp}, {"heders", "hunter2"}}),
                testing::Not(testing::HasSubstr("hunter2")));
}

TEST(OtlpOptions, HeadersComeFromAFileOfRootsAlone) {
    char name[] = "/tmp/otlp_headers_XXXXXX";
    close(mkstemp(name));
    const auto with = [&](const std::string& text) {
        std::ofstream(name) << text;
        return ParseOtlpOptions({{"endpoint", kHttp}, {"headersfile", name}});
    };
    auto options = with("# of the SOC\nAuthorization: Bearer hunter2\n\nX-Scope-OrgID:  a \n");
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_THAT(options->headers, testing::ElementsAre("Authorization: Bearer hunter2", "X-Scope-OrgID: a"));
    for (const char* bad : {"hunter2\n", "A B: hunter2\n", "Host: hunter2\n", "content-LENGTH: hunter2\n",
                            "X:\n", "X: hun\rter2\n"}) {
        const std::string error(with(bad).status().message());
        EXPECT_THAT(error, testing::HasSubstr(std::string(name) + ":1")) << bad;
        EXPECT_THAT(error, testing::Not(testing::HasSubstr("hunter2"))) << error;
    }
    ASSERT_EQ(chmod(name, 0644), 0);
    EXPECT_THAT(std::string(with("X: y\n").status().message()),
                testing::HasSubstr("may be read by everybody"));
    unlink(name);
}

}  // namespace
}  // namespace stockade::exporters
