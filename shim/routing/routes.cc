// SPDX-License-Identifier: Apache-2.0
#include "shim/routing/routes.h"

#include <cstring>

#include "common/names.h"
#include "shim/routing/path_match.h"

namespace cacheshim {

// Joins the parts into the object's own memory, with a final NUL. Returns an empty view if there is
// no space.
std::string_view Routes::keep(std::string_view a, std::string_view b, std::string_view c) {
  char* const begin = text_ + text_length_;
  if (a.size() + b.size() + c.size() >= sizeof text_ - text_length_) return {};
  char* at = begin;
  for (const std::string_view part : {a, b, c}) {
    if (!part.empty()) std::memcpy(at, part.data(), part.size());
    at += part.size();
  }
  *at = '\0';
  text_length_ += static_cast<std::size_t>(at - begin) + 1;
  return {begin, static_cast<std::size_t>(at - begin)};
}

bool Routes::set_mount(std::string_view mount, std::string_view job) {
  has_job_ = !job.empty();
  mount_ = keep(mount);
  view_ = mount_;
  if (has_job_) {
    const std::string_view jobs = keep(mount_, "/", kJobsName);
    view_ = jobs.empty() ? jobs : keep(jobs, "/", job);
  }
  if (mount_.size() < 2 || view_.empty()) {
    mount_ = {};
    return false;
  }
  return true;
}

bool Routes::add(std::string_view name, std::string_view default_path, bool is_routed) {
  PathBuffer clean;
  const std::size_t length = normalise_path(default_path, clean.text, sizeof clean.text);
  const std::string_view path(clean.text, length);
  if (length == 0 || mount_.empty() || starts_with_directory(path, mount_)) return false;
  if (count_ == kMaxRoutes) return false;
  const Route route{keep(name), keep(path), is_routed};
  if (route.name.empty() || route.default_path.empty()) return false;
  routes_[count_++] = route;
  return true;
}

const char* Routes::path_of_name(std::string_view name) {
  const std::string_view path = keep(mount_, "/", name);
  return path.empty() ? nullptr : path.data();
}

std::string_view Routes::job() const {
  if (!has_job_) return {};
  const std::size_t begin = mount_.size() + 1 + kJobsName.size() + 1;
  return {view_.data() + begin, view_.size() - begin};
}

std::size_t Routes::find(std::string_view name) const {
  for (std::size_t i = 0; i < count_; ++i) {
    if (routes_[i].name == name) return i;
  }
  return kNoRoute;
}

}  // namespace cacheshim
