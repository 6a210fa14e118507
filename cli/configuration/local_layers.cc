// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/local_layers.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <climits>
#include <string_view>
#include <system_error>

#include "cli/failure.h"
#include "cli/paths.h"
#include "common/names.h"
#include "store/sys/file_system.h"
#include "store/sys/sys.h"

namespace cacheshim::cli {
namespace {

// Returns a directory that outlives a reboot, because the daemon keeps a job's unpublished files for `layer_keep`.
std::string state_dir() {
  if (is_real_root()) return "/var/lib/cacheshim";
  return fmt::format("/var/tmp/cacheshim-{}", ::geteuid());
}

// Opens a directory; creates it if it is missing. Errors: EPERM if another user can change the directory, which is
// possible in /var/tmp: all users can create directories there.
Result<UniqueFd> ensure_own(int parent, const std::string& name) {
  CACHESHIM_CHECK(sys::ensure_dir_at(parent, name, 0700));
  CACHESHIM_TRY(directory, sys::open_beneath(parent, name, O_RDONLY | O_DIRECTORY));
  CACHESHIM_TRY(st, sys::stat_fd(directory.get()));
  if (!sys::is_private_dir(st, sys::own_uid())) return Errno(EPERM);
  return directory;
}

Result<UniqueFd> ensure_layers(const std::string& state, const std::string& name) {
  const std::size_t slash = state.rfind('/');
  CACHESHIM_TRY(parent, sys::open_path(state.substr(0, slash), O_RDONLY | O_DIRECTORY));
  CACHESHIM_TRY(own, ensure_own(parent.get(), state.substr(slash + 1)));
  CACHESHIM_TRY(layers, ensure_own(own.get(), "layers"));
  return ensure_own(layers.get(), name);
}

}  // namespace

std::string local_layers_for(const std::string& store) {
  const auto base = sys::open_path(store, O_RDONLY | O_DIRECTORY);
  if (!base || is_local_file_system(base->get())) return "";
  char name[NAME_MAX];
  const std::string escaped(name, escape_mount_path(store, name, sizeof name));
  const std::string state = state_dir();
  const auto layers = escaped.empty() ? Errno(ENAMETOOLONG) : ensure_layers(state, escaped);
  if (layers && is_local_file_system(layers->get())) {
    return fmt::format("{}/layers/{}", state, escaped);
  }
  print_line(fmt::format(
      "cannot keep the layers of the store '{}' in '{}/layers': {}; they are kept in the store",
      store, state,
      layers ? "it is not on a local file system"
             : std::generic_category().message(layers.error().code())));
  return "";
}

}  // namespace cacheshim::cli
