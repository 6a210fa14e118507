// SPDX-License-Identifier: Apache-2.0
#include "shim/start/start_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shim/routing/router.h"
#include "store/profiles/profile.h"

namespace cacheshim {
namespace {

class FakeEnvironment final : public Environment {
 public:
  std::string_view find(std::string_view name) const override {
    const auto found = values_.find(std::string(name));
    return found == values_.end() ? std::string_view() : found->second;
  }
  std::string& operator[](const std::string& name) { return values_[name]; }

 private:
  std::map<std::string, std::string> values_;
};

class RecordedActions final : public StartActions {
 public:
  void set_variable(const char* name, const char* value) override { variables[name] = value; }
  bool leads_to(const char* path, const char* directory) override {
    return path == link_path && directory == link_target;
  }
  void refuse_route(std::string_view item) override { refused.emplace_back(item); }

  std::string link_path;
  std::string link_target;

  std::map<std::string, std::string> variables;
  std::vector<std::string> refused;
};

class StartPlan : public testing::Test {
 protected:
  StartPlan() {
    Profile profile;
    profile.name = "family";
    profile.variable = "FAMILY_DIR";
    profile.evidence = Evidence::kRun;
    profile.unless = {"FAMILY_HOME", "FAMILY_OFF"};
    profile.default_paths = {"~/.family/cache", "/var/tmp/family"};
    table_bytes_ = compile_routes({profile});
    environment_["HOME"] = "/home/u";
  }
  void plan() {
    router_ = std::make_unique<Router>();
    ASSERT_TRUE(router_->routes().set_mount("/ci-cache", "j"));
    const auto table = RouteTable::parse(table_bytes_);
    ASSERT_TRUE(table);
    plan_profiles(environment_, *table, router_->routes(), actions_);
    plan_own_routes(environment_, router_->routes(), actions_);
  }
  std::string routed(const char* path) {
    return router_->route(path, buffer_, [](const char*, const char*) { return true; }).path;
  }
  std::string fallen_back(const char* path) {
    return router_->fall_back(path, buffer_, [](const char*, const char*) { return true; }).path;
  }

  std::string table_bytes_;
  FakeEnvironment environment_;
  RecordedActions actions_;
  std::unique_ptr<Router> router_;
  PathBuffer buffer_;
};

using Variables = std::map<std::string, std::string>;

// Triton writes the variable's path into its entries. Other jobs could not use entries that contain the path of this
// user's symlink.
TEST_F(StartPlan, RewritesAVariableThatLeadsToTheMountByALink) {
  environment_["FAMILY_DIR"] = actions_.link_path = "/home/u/link";
  actions_.link_target = "/ci-cache/family";
  plan();
  EXPECT_EQ(actions_.variables, (Variables{{"FAMILY_DIR", "/ci-cache/family"}}));
  EXPECT_EQ(routed("/home/u/.family/cache/x"), "/ci-cache/.jobs/j/family/x");
}

TEST_F(StartPlan, RewritesAVariableThatNamesTheMountByAnotherSpelling) {
  for (const char* value : {"//ci-cache//family", "/ci-cache/./family", "/ci-cache/family/"}) {
    environment_["FAMILY_DIR"] = value;
    plan();
    EXPECT_EQ(actions_.variables, (Variables{{"FAMILY_DIR", "/ci-cache/family"}})) << value;
    actions_.variables.clear();
  }
}

// The text does not show whether these paths lead to the mount: a relative path depends on the
// working directory, and a component before ".." may be a symlink. So the plan asks leads_to().
TEST_F(StartPlan, RewritesAVariableThatLeadsToTheMountFromTheWorkingDirectoryOrByDots) {
  for (const char* value : {"ci-cache/family", "./family", "/usr/../ci-cache/family"}) {
    environment_["FAMILY_DIR"] = actions_.link_path = value;
    actions_.link_target = "/ci-cache/family";
    plan();
    EXPECT_EQ(actions_.variables, (Variables{{"FAMILY_DIR", "/ci-cache/family"}})) << value;
    actions_.variables.clear();
  }
}

TEST_F(StartPlan, RewritesALinkThatEndsWithASlash) {
  environment_["FAMILY_DIR"] = "/home/u/link/";
  actions_.link_path = "/home/u/link";
  actions_.link_target = "/ci-cache/family";
  plan();
  EXPECT_EQ(actions_.variables, (Variables{{"FAMILY_DIR", "/ci-cache/family"}}));
}

TEST_F(StartPlan, KeepsAVariableThatLeadsBelowTheFamilysDirectory) {
  environment_["FAMILY_DIR"] = "/ci-cache/family/mine";
  plan();
  EXPECT_EQ(actions_.variables, Variables{});
  EXPECT_EQ(routed("/home/u/.family/cache/x"), "/ci-cache/.jobs/j/family/x");
}

TEST_F(StartPlan, LeavesALinkToAnotherPlaceAlone) {
  environment_["FAMILY_DIR"] = actions_.link_path = "/home/u/link";
  actions_.link_target = "/ci-cache/other";
  plan();
  EXPECT_EQ(actions_.variables, Variables{});
}

TEST_F(StartPlan, MovesAFamilyWhoseVariableIsUnset) {
  plan();
  EXPECT_EQ(actions_.variables, (Variables{{"FAMILY_DIR", "/ci-cache/family"}}));
  EXPECT_EQ(routed("/home/u/.family/cache/x"), "/ci-cache/.jobs/j/family/x");
  EXPECT_EQ(routed("/var/tmp/family/x"), "/ci-cache/.jobs/j/family/x");
}

TEST_F(StartPlan, KeepsAVariableThatLeadsToTheMount) {
  environment_["FAMILY_DIR"] = "/ci-cache/family";
  environment_["FAMILY_OFF"] = "1";
  plan();
  EXPECT_EQ(actions_.variables, Variables{});
  EXPECT_EQ(routed("/home/u/.family/cache/x"), "/ci-cache/.jobs/j/family/x");
}

TEST_F(StartPlan, LeavesAFamilyAloneThatTheUserHasPutElsewhere) {
  for (const char* value :
       {"/elsewhere", "/ci-cache2/family", "relative", "ci-cache/family", "/ci-cache/../x"}) {
    environment_["FAMILY_DIR"] = value;
    plan();
    EXPECT_EQ(actions_.variables, Variables{}) << value;
    EXPECT_EQ(routed("/home/u/.family/cache/x"), "/home/u/.family/cache/x") << value;
    EXPECT_EQ(fallen_back("/ci-cache/family/x"), "/home/u/.family/cache/x") << value;
  }
}

TEST_F(StartPlan, LeavesAFamilyAloneForAnyOfItsOtherVariables) {
  for (const char* name : {"FAMILY_HOME", "FAMILY_OFF"}) {
    environment_[name] = "/x";
    plan();
    EXPECT_EQ(actions_.variables, Variables{}) << name;
    EXPECT_EQ(routed("/home/u/.family/cache/x"), "/home/u/.family/cache/x") << name;
    environment_[name] = "";
  }
}

TEST_F(StartPlan, WithoutAHomeDirectoryOnlyTheVariableMoves) {
  for (const char* home : {"", "relative"}) {
    environment_["HOME"] = home;
    plan();
    EXPECT_EQ(actions_.variables.size(), 1u);
    EXPECT_EQ(routed("/.family/cache/x"), "/.family/cache/x");
    EXPECT_EQ(routed("/var/tmp/family/x"), "/ci-cache/.jobs/j/family/x");
  }
}

TEST_F(StartPlan, TakesTheHomeDirectoryFromCacheshimHomeIfHomeIsUnset) {
  environment_["HOME"] = "";
  environment_["CACHESHIM_HOME"] = "/home/u";
  plan();
  EXPECT_EQ(routed("/home/u/.family/cache/x"), "/ci-cache/.jobs/j/family/x");
}

TEST_F(StartPlan, CleansTheHomeDirectoriesName) {
  environment_["CACHESHIM_HOME"] = "/elsewhere";  // counts only for a process without HOME
  environment_["HOME"] = "//home/u/";
  plan();
  EXPECT_EQ(routed("/home/u/.family/cache/x"), "/ci-cache/.jobs/j/family/x");
}

TEST_F(StartPlan, AddsTheUsersOwnRoutes) {
  environment_["CACHESHIM_ROUTES"] = "/opt/kernels/=kernels:~/own=n:/odd=name=last:";
  plan();
  EXPECT_EQ(routed("/opt/kernels/a"), "/ci-cache/.jobs/j/kernels/a");
  EXPECT_EQ(routed("/home/u/own"), "/ci-cache/.jobs/j/n");
  EXPECT_EQ(routed("/odd=name/x"), "/ci-cache/.jobs/j/last/x");
  EXPECT_TRUE(actions_.refused.empty());
}

TEST_F(StartPlan, ReportsOwnRoutesThatItRefuses) {
  environment_["CACHESHIM_ROUTES"] = "x:/a=:rel=b:/c=.hidden:/d=e/f:/ci-cache/g=h:/good=i";
  plan();
  EXPECT_EQ(actions_.refused, (std::vector<std::string>{"x", "/a=", "rel=b", "/c=.hidden", "/d=e/f",
                                                        "/ci-cache/g=h"}));
  EXPECT_EQ(routed("/good"), "/ci-cache/.jobs/j/i");
}

TEST(JobOfProcess, ComesFromTheEnvironment) {
  FakeEnvironment environment;
  EXPECT_TRUE(job_of_process(environment, "0::/job_5\n").empty());
  environment["CI_JOB_ID"] = "9";
  EXPECT_EQ(job_of_process(environment, "").view(), "9");
}

TEST(JobOfProcess, ASlurmIdThatTheCgroupContradictsIsLeftToTheDaemon) {
  FakeEnvironment environment;
  environment["SLURM_JOB_ID"] = "42";
  EXPECT_EQ(job_of_process(environment, "0::/user.slice\n").view(), "42");
  EXPECT_EQ(job_of_process(environment, "0::/slurm/job_42/step_0\n").view(), "42");
  EXPECT_TRUE(job_of_process(environment, "0::/slurm/job_43/step_0\n").empty());
  environment["CACHESHIM_JOB"] = "mine";
  EXPECT_EQ(job_of_process(environment, "0::/slurm/job_43/step_0\n").view(), "mine");
}

}  // namespace
}  // namespace cacheshim
