// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/kernel/kernel_fixture.h"

// Tests which information about other users' jobs and files the control directory reveals to a user.
namespace cacheshim {
namespace {

using nlohmann::json;

constexpr uid_t kOwner = 20001;
constexpr uid_t kStranger = 20002;

class FuseKernelInformation : public FuseKernelTest {
 protected:
  FuseKernelInformation() {
    scratch_.write("store/fam/KEY/closed", "text");
    EXPECT_EQ(::chmod((scratch_ / "store/fam/KEY/closed").c_str(), 0600), 0);
    scratch_.write("store/fam/KEY/open", "text");
    scratch_.write("store/fam/DIR/file", "text");
    EXPECT_EQ(::chmod((scratch_ / "store/fam/DIR").c_str(), 0700), 0);
    speak_as(kOwner);
    const auto family = calls_.lookup(view_of("mine"), "fam");
    const auto entry = calls_.mkdir(*family, "MINE");
    EXPECT_TRUE(entry && calls_.put(*entry, "secret", "text"));
  }

  void speak_as(uid_t uid) { kernel_.speak_as(uid, uid, 0); }
  std::uint64_t control_node(const std::string& name) {
    return *calls_.lookup(*calls_.lookup(FUSE_ROOT_ID, ".cacheshim"), name);
  }
  // Sends the request as this user. Returns the last line of the reply.
  json send(uid_t uid, const json& request) {
    speak_as(uid);
    const auto file = calls_.open(control_node("control"), O_RDWR);
    EXPECT_TRUE(calls_.write(*file, request.dump()));
    json line;
    do {
      const auto text = calls_.read(*file, 1 << 16);
      line = text ? json::parse(*text, nullptr, false) : json("no answer");
    } while (line.is_object() && line.contains("progress"));
    EXPECT_TRUE(calls_.release(*file));
    return line;
  }
  json explain(uid_t uid, const std::string& job, const std::string& path) {
    return send(uid, {{"op", "explain"}, {"job", job}, {"path", path}});
  }
};

TEST_F(FuseKernelInformation, AJobIsShownToItsUserAndTheDaemonsOnly) {
  for (const json& request :
       {json{{"op", "job-show"}, {"job", "mine"}}, json{{"op", "job-layer"}, {"job", "mine"}},
        json{{"op", "explain"}, {"job", "mine"}, {"path", "fam/MINE/secret"}}}) {
    EXPECT_EQ(send(kStranger, request).value("exit", 0), 1) << request;
    for (const uid_t uid : {kOwner, ::getuid(), uid_t{0}}) {
      EXPECT_TRUE(send(uid, request).value("ok", false)) << request << uid;
    }
  }
}

TEST_F(FuseKernelInformation, TheFileOfAJobIsOpenedByItsUserAndTheDaemonsOnly) {
  const std::uint64_t file = *calls_.lookup(control_node("jobs"), "mine");
  speak_as(kStranger);
  EXPECT_TRUE(calls_.open(file, O_RDONLY).failed_with(EACCES));
  for (const uid_t uid : {kOwner, ::getuid(), uid_t{0}}) {
    speak_as(uid);
    EXPECT_TRUE(calls_.open(file, O_RDONLY)) << uid;
  }
}

TEST_F(FuseKernelInformation, TheListOfJobsNamesLayersOfTheCallersJobsOnly) {
  const auto layer = [&](uid_t uid) { return send(uid, {{"op", "job-list"}})["jobs"][0]["layer"]; };
  EXPECT_TRUE(layer(kStranger).is_null());
  EXPECT_TRUE(layer(kOwner).is_string());
  EXPECT_TRUE(layer(::getuid()).is_string());
}

TEST_F(FuseKernelInformation, ADigestNeedsTheRightToReadTheFile) {
  speak_as(kStranger);
  (void)view_of("theirs");
  for (const char* job : {"theirs", "unknown"}) {
    const json closed = explain(kStranger, job, "fam/KEY/closed");
    EXPECT_EQ(closed.value("from", ""), "base") << closed;
    EXPECT_FALSE(closed.contains("xxh3")) << closed;
    EXPECT_TRUE(explain(kStranger, job, "fam/KEY/open").contains("xxh3"));
  }
  EXPECT_TRUE(explain(::getuid(), "unknown", "fam/KEY/closed").contains("xxh3"));
  EXPECT_TRUE(explain(0, "unknown", "fam/KEY/closed").contains("xxh3"));
}

TEST_F(FuseKernelInformation, APathNeedsTheRightToSearchItsDirectories) {
  const json there = explain(kStranger, "unknown", "fam/DIR/file");
  const json absent = explain(kStranger, "unknown", "fam/DIR/none");
  EXPECT_EQ(there.value("error", ""), "uid 20002 may not look up 'fam/DIR/file'");
  EXPECT_EQ(absent.value("error", ""), "uid 20002 may not look up 'fam/DIR/none'");
  EXPECT_EQ(explain(::getuid(), "unknown", "fam/DIR/file").value("from", ""), "base");
  EXPECT_EQ(explain(kStranger, "unknown", "fam/NONE/none").value("from", ""), "nowhere");
}

}  // namespace
}  // namespace cacheshim
