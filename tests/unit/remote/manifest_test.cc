// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/support/entry_object_fixture.h"

namespace cacheshim::remote {
namespace {

TEST_F(EntryObject, ManifestHasOneForm) {
  const std::string archive = compressed("abc12");
  const std::string good = to_text(opened(crafted()));
  const auto verdict_with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return verdict(sign_object(text, archive, key_));
  };
  EXPECT_EQ(verdict_with("{", "{"), "accepted");
  const std::vector<std::pair<std::string, std::string>> changes = {
      {R"("build_ms":1500)", R"("build_ms": 1500)"},
      {R"("build_ms":1500)", R"("build_ms":1500,"color":"red")"},
      {R"("build_ms":1500,)", R"("build_ms":1500,"build_ms":1500,)"},
      {R"("build_ms":1500,)", ""},
      {R"("build_ms":1500)", R"("build_ms":1500.0)"},
      {R"("build_ms":1500)", R"("build_ms":-1500)"},
      {R"("build_ms":1500)", R"("build_ms":1e300)"},
      {R"("build_ms":1500)", R"("build_ms":18446744073709551616)"},
      {R"("build_ms":1500)", R"("build_ms":"1500")"},
      {R"("mode":420)", R"("mode":4294967716)"},
      {R"("mode":420)", R"("color":"red","mode":420)"},
      {R"("mode":420)", R"("link":"b","mode":420)"},
      {R"("directories":[])", R"("directories":{})"},
      {R"("directories":[])", R"("directories":"x")"},
      {R"("directories":[])", R"("directories":[1])"},
      {R"("files":[)", R"("files":[1,)"},
      {R"("files":[)", R"("files":[[[[]]],)"},
      {R"("node":"node-1")", R"("node":"node\u002d1")"},
      {R"("node":"node-1")", "\"node\":\"\xff\""},
      {R"("node":"node-1")", R"("node":"a\nb")"},
      {R"("unit")", R"("unit" )"},
      {R"("path":"triton)", R"("path":"\u0000riton)"},
      {good, "[]"},
      {good, ""},
      {good, std::string(kMostManifestBytes, '[')},
      {good, std::string(kMostManifestBytes, ' ')}};
  for (const auto& [from, to] : changes)
    EXPECT_EQ(verdict_with(from, to), "corrupt") << to.substr(0, 80);
  EXPECT_EQ(verdict(sign_object(std::string(kMostManifestBytes + 1, ' '), archive, key_)),
            "corrupt");
}

struct ManifestCase {
  const char* expected;
  std::function<void(Manifest&)> change;
};

TEST_F(EntryObject, ManifestsThatBreakTheRulesAreRefused) {
  const std::string digest = digest_of_text("abc");
  const auto rename_to = [](const std::string& path) {
    return [path](Manifest& manifest) { manifest.files[1].path = path; };
  };
  const auto link_to = [](const std::string& target) {
    return [target](Manifest& manifest) {
      manifest.files.push_back({"triton/KEY/c", 0, 0, "", target});
    };
  };
  const auto add_dir = [](const std::string& path) {
    return [path](Manifest& manifest) { manifest.directories.push_back(path); };
  };
  const std::string below = "triton/KEY/";
  std::string deep = below + "z";
  while (deep.size() < 300) deep += "/z";
  const std::vector<ManifestCase> cases = {
      {"accepted", rename_to(below + "b")},
      {"corrupt", rename_to("../x")},
      {"corrupt", rename_to(below + "../x")},
      {"corrupt", rename_to(below + "../KEY/x")},
      {"corrupt", rename_to("/etc/passwd")},
      {"corrupt", rename_to("/triton/KEY/x")},
      {"corrupt", rename_to("")},
      {"corrupt", rename_to("triton/KEYS")},
      {"corrupt", rename_to("triton")},
      {"corrupt", rename_to("x")},
      {"corrupt", rename_to(below)},
      {"corrupt", rename_to(below + "/b")},
      {"corrupt", rename_to(below + "./b")},
      {"corrupt", rename_to(below + "b/.")},
      {"corrupt", rename_to(below + "b/..")},
      {"corrupt", rename_to(below + "b/")},
      {"corrupt", rename_to(below + "b\nc")},
      {"corrupt", rename_to(below + std::string(1, '\0'))},
      {"corrupt", rename_to(below + "b" + std::string(1, '\0') + "c")},
      {"corrupt", rename_to(below + "\x7f")},
      {"corrupt", rename_to(below + "\u202e")},
      {"corrupt", rename_to(below + std::string(256, 'b'))},
      {"accepted", rename_to(below + std::string(255, 'b'))},
      {"too large", rename_to(deep)},
      {"too large", rename_to(below + std::string(3072, 'b'))},
      {"corrupt", rename_to(below + "a")},    // repeated
      {"corrupt", rename_to(below + "a/b")},  // below a file
      {"corrupt", rename_to("triton/KEY")},   // the parent of a file
      {"corrupt", rename_to(below + "0")},    // not sorted
      {"corrupt", add_dir(below + "a")},      // a file and a directory
      {"corrupt", add_dir(below + "b/c")},    // below a file
      {"corrupt", add_dir("triton/KEY")},     // not empty
      {"corrupt", add_dir("triton")},         // outside
      {"corrupt", add_dir("../x")},
      {"corrupt", add_dir("/x")},
      {"accepted", add_dir(below + "a-b")},
      {"corrupt",
       [&](Manifest& manifest) {
         manifest.directories = {below + "d", below + "d"};
       }},
      {"corrupt",
       [&](Manifest& manifest) {
         manifest.directories = {below + "d", below + "d/e"};
       }},
      {"corrupt",
       [&](Manifest& manifest) {
         manifest.directories = {below + "e", below + "d"};
       }},
      {"corrupt",  // a parent that does not directly precede its child in plain byte order
       [&](Manifest& manifest) {
         manifest.directories = {below + "a/c"};
         manifest.files[1].path = below + "a-b";
       }},
      {"accepted", link_to("a")},
      {"accepted", link_to("none/such")},
      {"corrupt", link_to("/etc/passwd")},
      {"corrupt", link_to("..")},
      {"corrupt", link_to("../KEY/a")},
      {"corrupt", link_to("a/../../../x")},
      {"corrupt", link_to(".")},
      {"corrupt", link_to("a/")},
      {"corrupt", link_to("a\nb")},
      {"too large", link_to(std::string(4000, 'a'))},
      {"corrupt",  // below a symlink
       [&](Manifest& manifest) {
         manifest.files.push_back({below + "c", 0, 0, "", "a"});
         manifest.files.push_back({below + "c/d", 0, 0644, digest, ""});
       }},
      {"corrupt",  // the unit is a symlink to another entry
       [](Manifest& manifest) {
         manifest.files = {{"triton/KEY", 0, 0, "", "OTHER"}};
         manifest.content_size = 0;
       }},
      {"corrupt", [](Manifest& manifest) { manifest.files[0].mode = 04755; }},
      {"corrupt", [](Manifest& manifest) { manifest.files[0].mode = 0100644; }},
      {"corrupt", [](Manifest& manifest) { manifest.files[0].digest = ""; }},
      {"corrupt", [](Manifest& manifest) { manifest.files[0].digest[3] = 'A'; }},
      {"corrupt", [](Manifest& manifest) { manifest.files[0].size = 4; }},
      {"corrupt", [](Manifest& manifest) { manifest.content_size = 6; }},
      {"corrupt",  // the sum overflows
       [](Manifest& manifest) {
         manifest.files[0].size = ~std::uint64_t{0};
         manifest.files[1].size = 6;
       }},
      {"too large",
       [](Manifest& manifest) {
         manifest.content_size = ObjectLimits().content_bytes + 1;
         manifest.files[0].size = manifest.content_size - 2;
       }},
      {"corrupt", [](Manifest& manifest) { ++manifest.archive_size; }},
      {"corrupt", [](Manifest& manifest) { manifest.archive_digest[0] ^= 1; }},
      {"corrupt", [](Manifest& manifest) { manifest.archive_digest = ""; }},
      {"corrupt", [](Manifest& manifest) { manifest.facts.profile = "\x1b[2J"; }},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(verdict(crafted(cases[i].change)), cases[i].expected) << "case " << i;
  }
}

TEST_F(EntryObject, ManyFilesAreRefused) {
  const std::string directories = crafted([](Manifest& manifest) {
    manifest.unit = "u";
    manifest.files.clear();
    manifest.content_size = 0;
    for (int i = 100'000; i < 200'000; ++i)
      manifest.directories.push_back("u/" + std::to_string(i).substr(1));
  });
  ASSERT_LE(directories.size(), kMostManifestBytes);
  EXPECT_EQ(verdict(directories, {"u", 3}), "too large");
  EXPECT_EQ(verdict(directories, {"u", 3}, {.files = 100'000}), "accepted");
  const std::string links = crafted([](Manifest& manifest) {
    for (int i = 100'000; i < 200'000; ++i) {
      manifest.files.push_back({"triton/KEY/c" + std::to_string(i), 0, 0, "", "a"});
    }
  });
  EXPECT_EQ(verdict(links), "corrupt") << "its manifest is longer than the format allows";
}

TEST_F(EntryObject, ReaderObeysItsLimits) {
  const std::string object = packed();
  const ExpectedEntry expected{kUnit, 3};
  EXPECT_EQ(verdict(object, expected, {.files = 8, .depth = 5, .path_bytes = 27}), "accepted");
  EXPECT_EQ(verdict(object, expected, {.files = 7}), "too large");
  EXPECT_EQ(verdict(object, expected, {.depth = 4}), "too large");
  EXPECT_EQ(verdict(object, expected, {.path_bytes = 26}), "too large");
  EXPECT_EQ(verdict(object, expected, {.content_bytes = 305'000}), "too large");
}

}  // namespace
}  // namespace cacheshim::remote
