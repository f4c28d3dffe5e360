#include "userspace/k8s/objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace stockade::k8s {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ReadObjects, YamlAndJsonSayTheSame) {
    ObjectSet yaml, json;
    ASSERT_TRUE(ReadObjects("a", "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ns, labels: {a.b/c: 'true'}}\n"
                                 "spec: {hostPID: true, x: 12, l: [a, b]}\n", &yaml).ok());
    ASSERT_TRUE(ReadObjects("b", R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"ns","labels":{"a.b/c":"true"}},
                                     "spec":{"hostPID":true,"x":12,"l":["a","b"]}})", &json).ok());
    for (const ObjectSet* set : {&yaml, &json}) {
        const std::vector<Object> pods = set->OfKind("Pod");
        ASSERT_EQ(pods.size(), 1u);
        EXPECT_EQ(pods[0].Called(), "Pod ns/p");
        EXPECT_EQ(pods[0].Label("a.b/c"), "true");
        EXPECT_TRUE(pods[0].Flag("spec.hostPID", false));
        EXPECT_EQ(pods[0].Number("spec.x", 0), 12);
        ASSERT_EQ(pods[0].Items("spec.l").size(), 2u);
        EXPECT_EQ(pods[0].Items("spec.l")[1].text(), "b");
        EXPECT_THAT(pods[0].Keys("spec"), ElementsAre("hostPID", "l", "x"));
    }
}

// kubectl reads YAML 1.1: what is a truth for it must be one here, or a pod would be judged by what it does not say.
TEST(ReadObjects, WordsOfTruthAreThoseOfKubectl) {
    for (const char* word : {"true", "True", "yes", "on", "y"}) {
        ObjectSet set;
        ASSERT_TRUE(ReadObjects("a", absl::StrCat("apiVersion: v1\nkind: Pod\nspec: {hostPID: ", word, "}\n"), &set).ok());
        EXPECT_TRUE(set.OfKind("Pod")[0].Flag("spec.hostPID", false)) << word;
    }
    ObjectSet set;
    ASSERT_TRUE(ReadObjects("a", "apiVersion: v1\nkind: Pod\nspec: {a: 'true', b: off, c: null, d: ~, e: v1.2, f: }\n", &set).ok());
    const Object pod = set.OfKind("Pod")[0];
    EXPECT_FALSE(pod.Flag("spec.a", false));  // a text, which no bool field takes
    EXPECT_FALSE(pod.Flag("spec.b", true));
    for (const char* name : {"spec.c", "spec.d", "spec.f", "spec.z"}) EXPECT_FALSE(pod.Get(name).exists()) << name;
    EXPECT_EQ(pod.Text("spec.e"), "v1.2");
}

TEST(ReadObjects, ListsAreTakenApart) {
    ObjectSet set;
    ASSERT_TRUE(ReadObjects("a", R"({"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod"},{"x":1}]})", &set).ok());
    ASSERT_TRUE(ReadObjects("b", R"({"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"q"}}]})", &set).ok());
    ASSERT_TRUE(ReadObjects("c", R"({"apiVersion":"v1","kind":"List","items":[]})", &set).ok());
    // A kind that only ends in the word.
    ASSERT_TRUE(ReadObjects("d", "apiVersion: x/v1\nkind: AllowList\nmetadata: {name: w}\n", &set).ok());
    EXPECT_EQ(set.OfKind("Pod").size(), 2u);
    EXPECT_EQ(set.OfKind("Pod")[1].name(), "q");
    EXPECT_EQ(set.OfKind("AllowList").size(), 1u);
    EXPECT_THAT(set.skipped, ElementsAre("a (an item)"));
}

TEST(ReadObjects, DocumentsThatAreNoObjectsAreTold) {
    ObjectSet set;
    ASSERT_TRUE(ReadObjects("v.yaml", "a: 1\n---\napiVersion: v1\nkind: Pod\n---\n- list\n---\n", &set).ok());
    EXPECT_EQ(set.size(), 1u);
    EXPECT_THAT(set.skipped, ElementsAre("v.yaml:1", "v.yaml:6"));
}

TEST(ReadObjects, WhatCannotBeReadIsAnError) {
    const std::pair<std::string, std::string> kBad[] = {
        {"", "it is empty"},
        {" \n\t", "it is empty"},
        {"{\"apiVersion\": ", "no JSON"},
        {"{} trailing", "no JSON"},
        {"a: [1", "x:"},
        {"a: {{ .Values.x }}\nb", "x:"},
        {"apiVersion: v1\nkind: Pod\nkind: Job\n", "x:3"},
        {std::string(600 << 10, ' ') + "a: 1", "x"},                              // longer than any manifest
        {std::string(10'000, '{'), "no JSON"},                                   // deep
        {absl::StrCat("{\"a\":", std::string(10'000, '['), "}"), "no JSON"},
        {"a: " + std::string(10'000, '['), "x:"},
    };
    for (const auto& [text, words] : kBad) {
        ObjectSet set;
        const Status status = ReadObjects("x", text, &set);
        EXPECT_FALSE(status.ok()) << text.substr(0, 40);
        EXPECT_THAT(std::string(status.message()), HasSubstr(words)) << text.substr(0, 40);
        EXPECT_EQ(set.size(), 0u);
        EXPECT_THAT(set.skipped, IsEmpty());
    }
}

}  // namespace
}  // namespace stockade::k8s
