// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/mount_options.h"

#include <fmt/format.h>
#include <sys/mount.h>

#include <string_view>

#include "cli/failure.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {
namespace {

struct Option {
  std::string_view name;
  unsigned long set;
  unsigned long clear;
};

constexpr unsigned long kAtimes = MS_NOATIME | MS_RELATIME | MS_STRICTATIME;

// The flags that mount(8) passes for an ordinary fstab line. suid and dev are missing, because a
// store's mount never has them: otherwise every user who may publish could give set-id programs to
// others.
constexpr Option kFlags[] = {
    {"ro", MS_RDONLY, 0},
    {"rw", 0, MS_RDONLY},
    {"noexec", MS_NOEXEC, 0},
    {"exec", 0, MS_NOEXEC},
    {"noatime", MS_NOATIME, kAtimes},
    {"atime", 0, MS_NOATIME},
    {"nodiratime", MS_NODIRATIME, 0},
    {"diratime", 0, MS_NODIRATIME},
    {"relatime", MS_RELATIME, kAtimes},
    {"norelatime", 0, MS_RELATIME},
    {"strictatime", MS_STRICTATIME, kAtimes},
    {"lazytime", MS_LAZYTIME, 0},
    {"sync", MS_SYNCHRONOUS, 0},
    {"async", 0, MS_SYNCHRONOUS},
    {"dirsync", MS_DIRSYNC, 0},
    {"nosuid", MS_NOSUID, 0},
    {"nodev", MS_NODEV, 0},
};

constexpr std::string_view kSilent[] = {"defaults", "allow_other", "default_permissions",
                                        "auto",     "noauto",      "nofail",
                                        "_netdev",  "user",        "users",
                                        "nouser",   "owner",       "group",
                                        "silent",   "loud"};

// Options that only mount(8) and umount(8) use. user_id and group_id are options of an existing
// mount; mount(8) passes them again for a remount.
constexpr std::string_view kSilentKeys[] = {
    "x-", "user=", "uhelper=", "comment=", "user_id=", "group_id="};

bool apply_owner_option(std::string_view word, OwnerMode& owners) {
  if (word == "owner=squash" || word == "owner=keep") {
    owners.keep = word == "owner=keep";
  } else if (word == "noacl") {
    owners.acls = false;
  } else {
    return false;
  }
  return true;
}

bool apply_mount_point_option(std::string_view word, MountOptions& options) {
  constexpr std::string_view kSource = "fsname=";
  if (word == "nonempty") {
    options.may_be_nonempty = true;
  } else if (word.starts_with(kSource)) {
    options.source = undo_backslashes(word.substr(kSource.size()));
  } else if (word == "remount") {
    throw Failure(kExitUsage,
                  "option 'remount' is for mount(8): mount -o remount,ro MOUNTPOINT, with "
                  "mount.fuse.cacheshim in /sbin; nothing was changed");
  } else {
    return false;
  }
  return true;
}

}  // namespace

MountOptions default_mount_options() {
  MountOptions options;
  options.flags = MS_NOSUID | MS_NODEV;
  return options;
}

std::string undo_backslashes(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 1 < text.size()) ++at;
    plain += text[at];
  }
  return plain;
}

std::vector<std::string> split_options(const std::vector<std::string>& texts) {
  std::vector<std::string> words;
  for (const std::string& text : texts) {
    std::string word;
    for (std::size_t at = 0; at < text.size(); ++at) {
      const bool has_next = at + 1 < text.size();
      if (text[at] == '\\' && has_next && text[at + 1] == ',') {
        word += text[++at];
      } else if (text[at] == '\\' && has_next) {
        word += text[at];
        word += text[++at];
      } else if (text[at] == ',') {
        words.push_back(std::move(word));
        word.clear();
      } else {
        word += text[at];
      }
    }
    words.push_back(std::move(word));
  }
  std::erase(words, "");
  return words;
}

bool apply_mount_option(const std::string& word, MountOptions& options) {
  for (const Option& option : kFlags) {
    if (option.name != word) continue;
    options.flags = (options.flags & ~option.clear) | option.set;
    return true;
  }
  for (const std::string_view silent : kSilent) {
    if (silent == word) return true;
  }
  for (const std::string_view key : kSilentKeys) {
    if (word.starts_with(key)) return true;
  }
  return apply_mount_point_option(word, options) || apply_owner_option(word, options.owners);
}

std::string known_mount_options() {
  std::string names;
  for (const Option& option : kFlags) names += fmt::format("{}, ", option.name);
  for (const std::string_view name : kSilent) names += fmt::format("{}, ", name);
  return names + "owner=squash, owner=keep, noacl, nonempty, fsname=NAME";
}

MountOptions parse_mount_options(const std::vector<std::string>& texts) {
  MountOptions options = default_mount_options();
  for (const std::string& word : split_options(texts)) {
    if (apply_mount_option(word, options)) continue;
    throw Failure(kExitUsage, fmt::format("unknown mount option '{}'; known are {}", word,
                                          known_mount_options()));
  }
  return options;
}

}  // namespace cacheshim::cli
