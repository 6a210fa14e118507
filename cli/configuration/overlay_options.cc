// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/overlay_options.h"

#include <fmt/format.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "cli/failure.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {
namespace {

// Options of fuse-overlayfs and of the kernel's overlayfs that have no effect here. They are
// accepted, so that existing command lines work unchanged.
constexpr std::string_view kIgnored[] = {
    "threaded",     "fast_ino", "noxattrs",    "static_nlink", "volatile",
    "fsync",        "timeout",  "writeback",   "clone_fd",     "debug",
    "redirect_dir", "index",    "metacopy",    "nfs_export",   "xino",
    "userxattr",    "uuid",     "max_threads", "allow_root",   "max_idle_threads"};

[[noreturn]] void refuse_options(const std::string& why) { throw Failure(kExitUsage, why); }

// Splits at `separator`; "\x" stands for x.
std::vector<std::string> split_paths(std::string_view text, char separator) {
  std::vector<std::string> paths(1);
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 1 < text.size()) {
      paths.back() += text[++at];
    } else if (text[at] == separator) {
      paths.emplace_back();
    } else {
      paths.back() += text[at];
    }
  }
  return paths;
}

std::vector<std::string> lower_paths(std::string_view value) {
  std::vector<std::string> paths = split_paths(value, ':');
  if (std::find(paths.begin(), paths.end(), "") != paths.end()) {
    refuse_options(fmt::format("option 'lowerdir={}' names an empty path", value));
  }
  return paths;
}

std::optional<unsigned> parse_id(std::string_view value) {
  unsigned id = 0;
  const char* end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, id);
  if (error != std::errc() || rest != end || id == static_cast<unsigned>(-1)) return std::nullopt;
  return id;
}

bool apply_squash(std::string_view key, std::string_view value, OwnerMode& owners) {
  if (key == "squash_to_root" && value.empty()) {
    // squash_to_uid and squash_to_gid take precedence over this option, in any order.
    owners.shown_uid = owners.shown_uid.value_or(0);
    owners.shown_gid = owners.shown_gid.value_or(0);
    return true;
  }
  if (key != "squash_to_uid" && key != "squash_to_gid") return false;
  const auto id = parse_id(value);
  if (!id) refuse_options(fmt::format("option '{}' needs a number, not '{}'", key, value));
  (key == "squash_to_uid" ? owners.shown_uid : owners.shown_gid) = *id;
  return true;
}

bool apply_directory(std::string_view key, std::string_view value,
                     OverlayDirectories& directories) {
  if (key == "lowerdir") {
    directories.lowers = lower_paths(value);
  } else if (key == "upperdir") {
    directories.upper = undo_backslashes(value);
  } else if (key == "workdir") {
    directories.work = undo_backslashes(value);
  } else {
    return false;
  }
  return true;
}

bool apply_flag(const std::string& word, OverlayOptions& options, bool is_root) {
  if (word != "suid" && word != "dev") return false;
  if (is_root) {
    options.mount.flags &= ~static_cast<unsigned long>(word == "suid" ? MS_NOSUID : MS_NODEV);
  } else {
    options.denied.push_back(word);
  }
  return true;
}

void apply(const std::string& word, OverlayOptions& options, bool is_root) {
  const std::string_view all = word;
  const auto equals = std::min(all.find('='), all.size());
  const std::string_view key = all.substr(0, equals);
  const std::string_view value = all.substr(std::min(equals + 1, all.size()));
  if (apply_mount_option(word, options.mount) || apply_flag(word, options, is_root) ||
      apply_directory(key, value, options.directories) ||
      apply_squash(key, value, options.mount.owners)) {
    return;
  }
  if (std::find(std::begin(kIgnored), std::end(kIgnored), key) == std::end(kIgnored)) {
    refuse_options(
        fmt::format("unknown overlay option '{}'; known are lowerdir=, upperdir=, workdir=, "
                    "squash_to_root, squash_to_uid=, squash_to_gid=, suid, dev, {}",
                    word, known_mount_options()));
  }
  options.ignored.push_back(word);
}

void check_directories(const OverlayDirectories& directories) {
  if (directories.lowers.empty())
    refuse_options("option 'lowerdir=' is missing: what is to be overlaid");
  if (directories.upper.empty() == directories.work.empty()) return;
  refuse_options(
      directories.upper.empty()
          ? "option 'workdir=' needs 'upperdir=' too: where changes go"
          : "option 'upperdir=' needs 'workdir=' too: an empty directory on its file system");
}

}  // namespace

OverlayOptions parse_overlay_options(const std::vector<std::string>& texts, bool is_root) {
  OverlayOptions options;
  options.mount = default_mount_options();
  options.mount.owners.keep = true;
  for (const std::string& word : split_options(texts)) apply(word, options, is_root);
  check_directories(options.directories);
  OwnerMode& owners = options.mount.owners;
  if (!owners.keep) {  // owner=squash: all processes share one view, in which the mounting user owns everything
    owners.keep = true;
    owners.shown_uid = owners.shown_uid.value_or(::geteuid());
    owners.shown_gid = owners.shown_gid.value_or(::getegid());
  }
  if (options.directories.upper.empty()) options.mount.flags |= MS_RDONLY;
  return options;
}

}  // namespace cacheshim::cli
