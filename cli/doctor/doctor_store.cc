// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "cli/configuration/units.h"
#include "cli/doctor/doctor.h"
#include "common/mount_info.h"
#include "common/names.h"
#include "common/unique_fd.h"
#include "store/base/store.h"
#include "store/base/store_format.h"
#include "store/base/store_survey.h"
#include "store/sys/file_system.h"
#include "store/sys/sys.h"

namespace cacheshim::cli {
namespace {

constexpr std::uint64_t kLittleSpace = 1ULL << 30;  // bytes
constexpr std::uint64_t kLittlePercent = 5;
constexpr long kOldTrashSeconds = 24 * 3600;

std::string reason(Errno error) { return std::generic_category().message(error.code()); }

// The store's descriptors. `control` is empty if this user has no access to the records.
struct OpenStore {
  UniqueFd base;
  UniqueFd control;
  struct stat st {};
};

std::string type_of(int directory) {
  struct statx status {};
  if (::statx(directory, "", AT_EMPTY_PATH, STATX_MNT_ID, &status) != 0) return "unknown";
  for (const MountEntry& mount : read_mounts()) {
    if (mount.id == status.stx_mnt_id) return mount.type;
  }
  return "unknown";
}

void check_file_system(const DoctorContext& context, const OpenStore& store, Findings& findings) {
  constexpr const char* kCheck = "store file system";
  struct statvfs status {};
  if (::fstatvfs(store.base.get(), &status) != 0) return;
  const bool is_local = is_local_file_system(store.base.get());
  const std::string what = fmt::format(
      "{}, {}", type_of(store.base.get()),
      is_local ? "local" : "other machines may write there: what they change is seen within 1 s");
  if ((status.f_flag & ST_RDONLY) != 0) {
    return findings.problem(kCheck, context.store, what + "; mounted ro: nothing can be published",
                            "mount it rw");
  }
  if ((status.f_flag & ST_NOEXEC) != 0) {
    return findings.warn(
        kCheck, context.store,
        what + "; mounted noexec: compiled modules cannot be loaded from it directly",
        "mount it without noexec");
  }
  findings.ok(kCheck, context.store, what);
}

void check_space(const DoctorContext& context, const OpenStore& store, Findings& findings) {
  struct statvfs status {};
  if (::fstatvfs(store.base.get(), &status) != 0) return;
  constexpr const char* kAdvice = "'cacheshim gc', with limits in [gc] of the configuration";
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  const std::uint64_t total = std::uint64_t{status.f_blocks} * status.f_frsize;
  const std::string space = fmt::format("{} free of {}", format_size(free), format_size(total));
  if (status.f_bavail == 0) {
    findings.problem("free space", context.store, space + ": nothing can be written", kAdvice);
  } else if (free < std::min(kLittleSpace, total / 100 * kLittlePercent)) {
    findings.warn("free space", context.store, space, kAdvice);
  } else {
    findings.ok("free space", context.store, space);
  }
  if (status.f_files == 0) return;  // the file system has no fixed number of inodes
  const std::string inodes = fmt::format("{} free of {}", status.f_favail, status.f_files);
  if (status.f_favail == 0) {
    findings.problem("free inodes", context.store, inodes + ": no file can be made", kAdvice);
  } else if (status.f_favail < status.f_files / 100 * kLittlePercent) {
    findings.warn("free inodes", context.store, inodes, kAdvice);
  } else {
    findings.ok("free inodes", context.store, inodes);
  }
}

void check_locks(const DoctorContext& context, const OpenStore& store, Findings& findings) {
  constexpr const char* kCheck = "store locks";
  const auto format = store.control
                          ? sys::open_beneath(store.control.get(), kStoreFormatFile, O_RDONLY)
                          : Result<UniqueFd>(Errno(EACCES));
  switch (probe_locks(format ? format->get() : store.base.get())) {
    case LockSupport::kWorks:
      return findings.ok(kCheck, context.store, "flock works");
    case LockSupport::kNone:
      return findings.warn(
          kCheck, context.store,
          "flock does not work on this file system: lock files exclude the processes of one mount "
          "alone, and several daemons of the store know nothing of each other",
          "use one daemon for each store; on NFS a lock service, on Lustre the option flock");
    case LockSupport::kUnknown:
      findings.warn(kCheck, context.store, "flock could not be tried", "run this as root");
  }
}

// Reports the result of the daemon's own probe, because a probe creates files and doctor must not change anything.
void check_renames(const DoctorContext& context, Findings& findings) {
  constexpr const char* kCheck = "store renames";
  const auto renames = context.status.is_object() ? context.status.value("renames", nlohmann::json())
                                                  : nlohmann::json();
  if (!renames.is_object() || !renames.contains("base")) return;
  const nlohmann::json& base = renames["base"];
  if (base == "flags") {
    findings.ok(kCheck, context.store, "renameat2 works with its flags");
  } else if (base == "links") {
    findings.ok(kCheck, context.store,
                "by link and unlink: the file system lacks flags of renameat2");
  } else if (base == "none") {
    findings.problem(kCheck, context.store,
                     "the file system lacks both flags of renameat2 and hard links: nothing can be published",
                     "move the store to another file system");
  }
}

void check_reflink(const DoctorContext& context, const OpenStore& store, Findings& findings) {
  const auto shares = store.control ? probe_reflink(store.control.get()) : Errno(EACCES);
  if (!shares) return;  // no write permission, or no O_TMPFILE
  findings.ok("reflink", context.store,
              *shares ? "copy-ups share their blocks with the base" : "none: copy-ups copy all data");
}

void check_format(const DoctorContext& context, const OpenStore& store, Findings& findings) {
  constexpr const char* kCheck = "store format";
  if (!store.control) {
    return findings.ok(
        kCheck, context.store,
        "no records that this user may read: a plain directory, or another user's store");
  }
  const auto text = sys::read_file(store.control.get(), kStoreFormatFile);
  if (text.failed_with(ENOENT)) {
    return findings.ok(kCheck, context.store, "none yet: the next mount writes it");
  }
  if (!text) {
    return findings.problem(kCheck, context.store, "cannot be read: " + reason(text.error()),
                            "give .cacheshim to the service account");
  }
  const auto parsed = parse_store_format(*text);
  if (const auto* refusal = std::get_if<std::string>(&parsed)) {
    return findings.problem(
        kCheck, context.store, *refusal,
        fmt::format("no daemon mounts this store; if the record is damaged, remove {}/{}/{}", context.store,
                    kControlName, kStoreFormatFile));
  }
  const StoreFormat& format = std::get<StoreFormat>(parsed);
  const std::string shown = context.said("mount");
  if (!shown.empty() && format.mount_path != shown) {
    return findings.warn(
        kCheck, context.store,
        fmt::format("its recorded mount path is '{}', and this mount is at '{}': entries that hold "
                    "paths (Triton's groups) are published from there alone",
                    format.mount_path, shown),
        "mount it at one path everywhere");
  }
  findings.ok(kCheck, context.store,
              fmt::format("version {}, mounted at '{}'", format.version, format.mount_path));
}

// Returns the mount path that the store has recorded; "" if it is unknown.
std::string recorded_mount_path(const OpenStore& store) {
  const auto text = store.control ? sys::read_file(store.control.get(), kStoreFormatFile)
                                  : Result<std::string>(Errno(EACCES));
  if (!text) return "";
  const auto parsed = parse_store_format(*text);
  const auto* format = std::get_if<StoreFormat>(&parsed);
  return format != nullptr ? format->mount_path : "";
}

// Whether the mode bits may allow user `uid` to write. Write permission for the group counts, because the user's groups
// are unknown here.
bool may_write(const struct stat& st, uid_t uid) {
  if (uid == 0) return true;
  if (st.st_uid == uid) return (st.st_mode & S_IWUSR) != 0;
  return (st.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

std::vector<std::string> foreign_directories(const OpenStore& store, uid_t account) {
  std::vector<std::string> found;
  const auto names = sys::list_dir(store.base.get());
  if (!names) return found;
  for (const sys::DirEntry& name : *names) {
    const auto st = sys::stat_at(store.base.get(), name.name);
    if (st && S_ISDIR(st->st_mode) && !may_write(*st, account)) found.push_back(name.name);
  }
  return found;
}

void check_permissions(const DoctorContext& context, const OpenStore& store, Findings& findings) {
  constexpr const char* kCheck = "store permissions";
  const std::string who = fmt::format("the service account (uid {})", context.account);
  const std::string give = fmt::format("'chown -R {} {}'", context.account, context.store);
  if (!may_write(store.st, context.account)) {
    return findings.problem(kCheck, context.store,
                            who + " may not write there: nothing is published", give);
  }
  const auto foreign = foreign_directories(store, context.account);
  if (!foreign.empty()) {
    return findings.problem(
        kCheck, context.store,
        fmt::format("{} may not write to {}: what belongs there is not published", who,
                    fmt::join(foreign, ", ")),
        give);
  }
  const auto control = store.control ? sys::stat_fd(store.control.get()) : Errno(EACCES);
  if (control && (control->st_mode & 077) != 0) {
    return findings.problem(
        kCheck, context.store + "/" + std::string(kControlName),
        fmt::format("mode {:04o}: other users can reach the layers and what is being published",
                    control->st_mode & 07777),
        "'chmod 0700' it");
  }
  if ((store.st.st_mode & S_IWOTH) != 0) {
    return findings.warn(
        kCheck, context.store,
        fmt::format("mode {:04o}: every user can put files there that others' jobs run",
                    store.st.st_mode & 07777),
        "'chmod o-w' it: jobs publish through the mount");
  }
  findings.ok(kCheck, context.store,
              fmt::format("uid {}, mode {:04o}", store.st.st_uid, store.st.st_mode & 07777));
}

void check_layers(const DoctorContext& context, const OpenStore& store, Findings& findings) {
  constexpr const char* kCheck = "layers";
  const std::string elsewhere = context.said("layers");
  const std::string path =
      elsewhere.empty() ? context.store + "/" + std::string(kControlName) + "/layers" : elsewhere;
  const auto layers = sys::open_path(path, O_RDONLY | O_DIRECTORY);
  if (layers.failed_with(ENOENT) || !store.control) return;
  const auto found = layers ? survey_layers(layers->get()) : layers.error();
  if (!found) {
    return findings.problem(kCheck, path, "cannot be read: " + reason(found.error()),
                            "give it to the service account");
  }
  const std::string node = node_name();
  std::size_t orphans = 0;
  std::size_t foreign = 0;
  std::size_t ended = 0;
  for (const SurveyedLayer& layer : *found) {
    ended += layer.is_ended ? 1U : 0U;
    foreign += layer.is_active && !layer.is_ended && layer.node != node ? 1U : 0U;
    orphans +=
        layer.is_active && !layer.is_ended && layer.node == node && !layer.is_served ? 1U : 0U;
  }
  const std::string what =
      fmt::format("{}, {} of other nodes, {} ended and kept for a while",
                  format_count(found->size(), "layer", "layers"), foreign, ended);
  if (orphans > 0) {
    return findings.warn(kCheck, path,
                         fmt::format("{}; the daemon of {} is gone", what,
                                     format_count(orphans, "active one", "active ones")),
                         "the next mount of the store on this node takes them over");
  }
  findings.ok(kCheck, path, what);
}

void check_left_over(const DoctorContext& context, const OpenStore& store, Findings& findings) {
  if (!store.control) return;
  const auto trash = count_old_trash(store.control.get(), kOldTrashSeconds);
  if (trash && *trash > 0) {
    findings.warn(
        "trash", context.store + "/.cacheshim/trash",
        fmt::format("{} there for more than a day", format_count(*trash, "object has been", "objects have been")),
        "'cacheshim gc' on a mount of the store empties it");
  } else if (trash) {
    findings.ok("trash", context.store + "/.cacheshim/trash", "nothing old");
  }
  const auto staging = count_left_staging(store.control.get());
  if (staging && *staging > 0) {
    findings.warn("staging", context.store + "/.cacheshim/staging",
                  fmt::format("{} left by daemons of this or another node that are not seen here",
                              format_count(*staging, "directory", "directories")),
                  "the next mount removes those that no daemon holds");
  }
}

}  // namespace

void check_store(DoctorContext& context, Findings& findings) {
  OpenStore store;
  auto base = sys::open_path(context.store, O_RDONLY | O_DIRECTORY);
  const auto st = base ? sys::stat_fd(base->get()) : Result<struct stat>(base.error());
  if (!st) {
    const bool is_needed = context.mount.empty();
    if (is_needed) context.is_available = false;
    const std::string what = "cannot be opened: " + reason(st.error());
    if (is_needed) {
      return findings.problem("store", context.store, what,
                              "name the directory that holds the caches");
    }
    return findings.warn("store", context.store, what,
                         "run this where it is mounted, and as root");
  }
  store.base = *std::move(base);
  store.st = *st;
  if (auto control = sys::open_beneath(store.base.get(), kControlName, O_RDONLY | O_DIRECTORY)) {
    store.control = *std::move(control);
  }
  check_file_system(context, store, findings);
  check_space(context, store, findings);
  check_format(context, store, findings);
  check_permissions(context, store, findings);
  check_locks(context, store, findings);
  check_renames(context, findings);
  check_reflink(context, store, findings);
  check_layers(context, store, findings);
  check_left_over(context, store, findings);
  check_entries(context, store.base.get(), recorded_mount_path(store), findings);
}

}  // namespace cacheshim::cli
