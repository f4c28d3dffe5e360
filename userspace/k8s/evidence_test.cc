#include "userspace/k8s/evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stockade::k8s {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPods[] = R"({"apiVersion":"v1","kind":"List","items":[
  {"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","uid":"u-1","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"HUNTER2","a":"kept"}},
   "spec":{"nodeName":"n1","securityContext":{"runAsUser":1000},"volumes":[{"name":"in","configMap":{"name":"c"}}],
     "initContainers":[{"name":"guard","image":"g","securityContext":{"runAsUser":0},"env":[{"name":"A","value":"HUNTER2"}]}],
     "containers":[{"name":"tool","image":"i","env":[{"name":"TOKEN","value":"HUNTER2"},{"name":"REF","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}],
       "volumeMounts":[{"name":"in","mountPath":"/in","readOnly":true}]}]},
   "status":{"phase":"Failed","conditions":[{"type":"Ready","status":"False","reason":"PodFailed"}]}},
  {"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"k":"SFVOVEVSMg"},"stringData":{"k":"HUNTER2"}},
  {"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"c"},"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"env":[{"name":"B","value":"HUNTER2"}]}]}}}}}}]})";

TEST(Redacted, TakesOutWhatMayBeSecretAndNothingElse) {
    ASSERT_THAT(std::string(kPods), HasSubstr("HUNTER2"));
    const StatusOr<std::string> out = Redacted(kPods);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_THAT(*out, Not(HasSubstr("HUNTER2")));
    EXPECT_THAT(*out, Not(HasSubstr("SFVOVEVSMg")));
    for (const char* word : {"TOKEN", "REF", "secretKeyRef", "\"kept\"", "u-1", "/in", "PodFailed", "CronJob"}) EXPECT_THAT(*out, HasSubstr(word));
    // Still objects, all of them.
    ObjectSet set;
    ASSERT_TRUE(ReadObjects("out", *out, &set).ok());
    EXPECT_EQ(set.size(), 3u);
    EXPECT_FALSE(Redacted("{").ok());
}

TEST(PodSummary, HasWhatPeopleLookAtFirst) {
    ObjectSet set;
    ASSERT_TRUE(ReadObjects("pods", kPods, &set).ok());
    const StatusOr<std::string> out = PodSummary(set);
    ASSERT_TRUE(out.ok()) << out.status();
    ObjectSet none;
    ASSERT_TRUE(ReadObjects("summary", R"({"apiVersion":"x","kind":"Summary","spec":)" + *out + "}", &none).ok());
    const Node pod = none.OfKind("Summary")[0].Items("spec.pods").at(0);
    EXPECT_EQ(pod.Text("uid"), "u-1");
    EXPECT_EQ(pod.Text("node"), "n1");
    EXPECT_EQ(pod.Items("conditions").at(0).Text("reason"), "PodFailed");
    EXPECT_EQ(pod.Items("volumes").at(0).Text("kind"), "configMap");
    ASSERT_EQ(pod.Items("containers").size(), 2u);
    EXPECT_EQ(pod.Items("containers")[0].Number("uid", -1), 0);
    EXPECT_EQ(pod.Items("containers")[1].Number("uid", -1), 1000);
    EXPECT_TRUE(pod.Items("containers")[1].Items("mounts").at(0).Flag("read_only", false));
}

}  // namespace
}  // namespace stockade::k8s
