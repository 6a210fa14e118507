// SPDX-License-Identifier: Apache-2.0
#include "cli/paths.h"

#include <fmt/format.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "cacheshim_build.h"
#include "cli/failure.h"
#include "cli/run_environment.h"
#include "common/exit_codes.h"
#include "common/mount_info.h"
#include "common/names.h"
#include "common/root_process.h"

namespace cacheshim::cli {
namespace fs = std::filesystem;
namespace {

std::string run_dir_in(std::string_view base, std::string_view mount_point) {
  std::array<char, NAME_MAX> name{};
  const std::size_t length = escape_mount_path(mount_point, name.data(), name.size());
  if (length == 0) return "";
  const std::string_view escaped(name.data(), length);
  return std::string(base) + "/" + std::string(kRunDirName) + "/" + std::string(escaped);
}

UserNamespace own_namespace() {
  std::ifstream file("/proc/self/uid_map");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_uid_map(text.str());
}

// Checks that root may use the mount, and returns its resolved path: another user could replace a symlink in the given
// path after the check. Throws Failure (unavailable).
std::string find_mount_for_root(const std::string& given) {
  const std::string path = resolve_path(given);
  const auto mount = find_mount(read_mounts(), path);
  if (!mount || mount->type != kFilesystemType) {
    throw Failure(kExitUnavailable, no_mount_text(given));
  }
  const auto owner = owner_of(*mount);
  if (owner && own_namespace().root_may_use_mount_of(*owner)) return path;
  throw Failure(
      kExitUnavailable,
      fmt::format("another user (uid {}) has mounted '{}', which {} names; root uses it only with "
                  "--mount",
                  owner.value_or(static_cast<uid_t>(-1)), given, kMountVariable));
}

}  // namespace

std::string no_mount_text(const std::string& mount) {
  return fmt::format(
      "no cacheshim mount at '{}'; mount one with 'cacheshim mount --store DIR {}', or name it with "
      "--mount",
      mount, mount);
}

Installation find_installation() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path prefix = program.parent_path().parent_path();
  const fs::path helpers = prefix / CACHESHIM_LIBEXECDIR / "cacheshim";
  return {.library = prefix / CACHESHIM_LIBDIR / "libcacheshim.so",
          .profiles = prefix / "share" / "cacheshim" / "profiles",
          .remote_helper = helpers / "cacheshim-remote",
          .metrics_helper = helpers / "cacheshim-metrics"};
}

std::optional<std::string> find_variable(std::string_view name) {
  const char* value = ::getenv(std::string(name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

bool is_switched_on(std::string_view name) {
  const std::string value = find_variable(name).value_or("");
  return !value.empty() && value != "0";
}

std::string config_dir() {
  if (::geteuid() == 0) return "/etc/cacheshim";
  if (const auto base = find_variable("XDG_CONFIG_HOME")) return *base + "/cacheshim";
  if (const auto home = find_variable("HOME")) return *home + "/.config/cacheshim";
  return "";
}

std::vector<std::string> profile_directories(const std::string& shipped,
                                             const std::string& config) {
  constexpr const char* kName = "/profiles.d";
  std::vector<std::string> directories = {shipped};
  const std::string own = config_dir();
  if (!own.empty()) directories.push_back(own + kName);
  std::error_code error;
  const std::string beside = fs::absolute(config, error).lexically_normal().parent_path();
  if (!config.empty() && !error && beside != own) directories.push_back(beside + kName);
  return directories;
}

std::string run_dir(std::string_view mount_point) {
  if (::geteuid() == 0) return run_dir_of_root(mount_point);
  const auto runtime = find_variable("XDG_RUNTIME_DIR");
  return runtime ? run_dir_in(*runtime, mount_point) : "";
}

std::string run_dir_of_root(std::string_view mount_point) {
  return run_dir_in(kRunBase, mount_point);
}

std::string resolve_path(const std::string& path) {
  std::error_code error;
  fs::path full = fs::absolute(path, error).lexically_normal();
  if (!full.has_filename()) full = full.parent_path();  // the path ends with '/'
  const fs::path whole = fs::canonical(full, error);
  if (!error) return whole;
  const fs::path parent = fs::canonical(full.parent_path(), error);
  return error ? full : parent / full.filename();
}

bool lies_in(std::string_view path, std::string_view directory) {
  if (!path.starts_with(directory)) return false;
  return path.size() == directory.size() || directory == "/" || path[directory.size()] == '/';
}

bool is_real_root() {
  if (::geteuid() != 0) return false;
  std::ifstream map("/proc/self/uid_map");
  std::uint64_t first = 0;
  std::uint64_t outside = 0;
  std::uint64_t count = 0;
  constexpr std::uint64_t kAll = 0xFFFFFFFF;
  // A kernel without user namespaces has no such file.
  return !(map >> first >> outside >> count) || (outside == 0 && count == kAll);
}

std::string chosen_mount(const std::string& option) {
  if (!option.empty()) return option;
  const std::string given = find_variable(kMountVariable).value_or("");
  if (given.empty() || given == kDefaultMountPoint) return std::string(kDefaultMountPoint);
  return ::geteuid() == 0 ? find_mount_for_root(given) : given;
}

std::string chosen_mount_point(const std::string& option) {
  if (!option.empty()) return option;
  const auto given = find_variable(kMountVariable);
  if (given && ::geteuid() == 0 && has_environment_of_another_user(ProcessEnvironment())) {
    throw Failure(kExitUsage,
                  fmt::format("{} '{}' may come from the user who ran sudo, and root mounts "
                              "nothing there; use --mount",
                              kMountVariable, *given));
  }
  return given.value_or(std::string(kDefaultMountPoint));
}

}  // namespace cacheshim::cli
