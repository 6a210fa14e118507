// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/failed_builds.h"

#include "store/sys/paths.h"

namespace cacheshim {
namespace {

constexpr std::size_t kMostFailed = 4096;

}  // namespace

void FailedBuilds::add(const std::string& path, Time until) {
  if (until_.size() >= kMostFailed) until_.clear();
  until_[path] = until;
}

bool FailedBuilds::has(const std::string& path, Time now) {
  const auto found = until_.find(path);
  if (found == until_.end()) return false;
  if (now < found->second) return true;
  until_.erase(found);
  return false;
}

void FailedBuilds::forget(std::string_view path) {
  std::erase_if(until_, [path](const auto& failed) {
    const std::string& name = failed.first;
    return is_at_or_below(name, path);
  });
}

}  // namespace cacheshim
