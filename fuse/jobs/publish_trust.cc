// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/publish_trust.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "store/sys/process.h"

namespace cacheshim {
namespace {

// The default overflow gid, which the kernel shows for each group that the daemon's user namespace
// does not map (user_namespaces(7)).
constexpr gid_t kUnknownGroup = 65534;

}  // namespace

PublishTrust::PublishTrust(std::optional<PublishAllow> allow)
    : allow_(std::move(allow)),
      cgroups_(allow_ && !allow_->jobs.empty() ? CgroupProof::of_this_process()
                                               : CgroupProof("")) {}

std::string PublishTrust::text() const {
  if (!allow_) return "every local user";
  return allow_->text.empty() ? "nobody" : allow_->text;
}

bool PublishTrust::is_in_groups(const Caller& caller) const {
  if (allow_->groups.empty()) return false;
  if (allow_->groups.contains(caller.gid)) return true;
  const auto groups = groups_of(caller.tid);
  return std::any_of(groups.begin(), groups.end(), [&](gid_t group) {
    return group != kUnknownGroup && allow_->groups.contains(group);
  });
}

bool PublishTrust::is_of_jobs(const Caller& caller) const {
  if (allow_->jobs.empty() || caller.tid <= 0) return false;
  const auto text = read_proc(caller.tid, "cgroup");
  const JobId job = text ? cgroups_.job_of(*text) : JobId();
  const std::string id(job.view());
  return !id.empty() &&
         std::any_of(allow_->jobs.begin(), allow_->jobs.end(), [&](const std::string& pattern) {
           return ::fnmatch(pattern.c_str(), id.c_str(), 0) == 0;
         });
}

std::string PublishTrust::why_refused(const Caller& caller) const {
  if (!allow_ || allow_->users.contains(caller.uid) || is_in_groups(caller) || is_of_jobs(caller)) {
    return "";
  }
  return fmt::format("uid {}, whom [publish] allow does not name, has written to its layer",
                     caller.uid);
}

}  // namespace cacheshim
