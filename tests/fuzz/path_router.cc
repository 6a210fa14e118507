// SPDX-License-Identifier: Apache-2.0
// Fuzzes the path router, and the choice of routes from a process's environment. The input consists of one line each
// for the mount, the job, CACHESHIM_ROUTES and HOME, then the text of mountinfo up to a NUL, and then a path per line.
#include <cstring>
#include <memory>

#include "common/job_id.h"
#include "common/names.h"
#include "shim/routing/mount_table.h"
#include "shim/routing/path_match.h"
#include "shim/routing/prefix_swap.h"
#include "shim/routing/router.h"
#include "shim/start/start_plan.h"
#include "tests/fuzz/target.h"

namespace cacheshim::fuzz {
namespace {

class NoActions final : public StartActions {
 public:
  void set_variable(const char*, const char*) override {}
  bool leads_to(const char* path, const char*) override { return std::strlen(path) % 2 == 0; }
  void refuse_route(std::string_view item) override { touch(item); }
};

bool is_same(const char* a, const char* b) { return (std::strlen(a) + std::strlen(b)) % 2 == 0; }

void require_sound(const char* path, const RoutedPath& routed, const PathBuffer& out) {
  require(routed.path == path || routed.path == out.text);
  require(std::strlen(routed.path) < sizeof out.text || routed.path == path);
  if (routed.kind != RoutedPath::Kind::kRewritten) return;
  require(routed.from_length <= std::strlen(path));
  require(routed.to_length <= std::strlen(routed.path));
  PathBuffer restored;
  (void)PrefixSwap(path, routed).restore(routed.path, restored);
}

void route_absolute(const Router& router, const char* path) {
  const auto out = std::make_unique<PathBuffer>();
  RoutedPath routed = router.route(path, *out, is_same);
  require_sound(path, routed, *out);
  if (!router.may_match(path)) require(routed.path == path);
  router.leave_view(routed, *out);
  require_sound(path, routed, *out);
  require_sound(path, router.fall_back(path, *out, is_same), *out);
  const Router::Place place = router.find_place(path, is_same);
  touch(place.name);
  if (place.name.empty()) return;
  for (std::size_t route = 0; route <= router.routes().size(); ++route) {
    const std::size_t wanted = route == router.routes().size() ? kNoRoute : route;
    touch(router.restore(path, place, wanted, *out));
  }
}

void route_relative(const Router& router, const char* path) {
  const auto out = std::make_unique<PathBuffer>();
  for (std::size_t candidate = 0;; ++candidate) {
    const Router::Relative match = router.match_relative(path, candidate);
    if (match.route == kNoRoute) return;
    require_sound(path, router.complete_relative(path, match, *out), *out);
  }
}

bool is_valid_mount(const std::string& mount) {
  char out[PATH_MAX];
  const std::size_t size = normalise_path(mount, out, sizeof out);
  return size > 0 && mount == std::string_view(out, size) && mount.find('\0') == mount.npos;
}

void run(std::string_view input) {
  const std::string mount = take_until(input, '\n');
  const std::string job = take_until(input, '\n');
  std::string block = std::string(kRoutesVariable) + "=" + take_until(input, '\n');
  block += std::string("\0HOME=", 6) + take_until(input, '\n');
  MountScanner scanner(mount);
  scanner.feed(take_until(input, '\0'));
  (void)scanner.finish();
  if (!is_valid_mount(mount)) return;

  const auto router = std::make_unique<Router>();
  if (!router->routes().set_mount(mount, JobId::from_text(job).view())) return;
  (void)router->routes().add("triton", "/home/u/.triton/cache", true);
  NoActions actions;
  plan_own_routes(EnvironmentBlock(block), router->routes(), actions);
  router->open();
  for (int lines = 0; !input.empty() && lines < 32; ++lines) {
    const std::string path = take_until(input, '\n');
    if (path.find('\0') != std::string::npos) continue;
    if (path.starts_with('/')) {
      route_absolute(*router, path.c_str());
    } else {
      route_relative(*router, path.c_str());
    }
  }
}

}  // namespace
}  // namespace cacheshim::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cacheshim::fuzz::run(cacheshim::fuzz::text_of(data, size));
  return 0;
}
