// SPDX-License-Identifier: Apache-2.0
#include "store/publish/publish_stage.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <utility>

#include "store/sys/copy_file.h"
#include "store/sys/digest.h"
#include "store/sys/job_xattrs.h"
#include "store/sys/new_object.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// Returns the mode of a published file. Only the service account, which owns the base, can write to
// the file. All users can read it if `opens_all` is set or if the job's file was readable by others;
// otherwise only the service account can read it (PublishHooks::has_one_user()).
mode_t published_mode(mode_t mode, bool opens_all) {
  const bool open_to_others = opens_all || (mode & S_IROTH) != 0;
  const bool executable = (mode & S_IXUSR) != 0;
  if (open_to_others) return executable ? 0755 : 0644;
  return executable ? 0700 : 0600;
}

}  // namespace

BaseVersion version_of(int base, const std::string& path) {
  const auto object = sys::open_beneath(base, path, O_PATH | O_NOFOLLOW);
  const auto st = object ? sys::stat_fd(object->get()) : object.error();
  return st ? BaseVersion{st->st_dev, st->st_ino} : BaseVersion{};
}

Publisher::Stage::Stage(int staging, UniqueFd directory, std::string name, std::string unit_path)
    : unit(std::move(unit_path)),
      staging_(staging),
      directory_(std::move(directory)),
      name_(std::move(name)) {}

Result<Publisher::Stage> Publisher::Stage::make(int staging, unsigned number,
                                                const std::string& unit) {
  const std::string name = fmt::format("{}", number);
  CACHESHIM_CHECK(sys::make_dir_at(staging, name, 0700));
  CACHESHIM_TRY(directory, sys::open_beneath(staging, name, O_RDONLY | O_DIRECTORY));
  return Stage(staging, std::move(directory), name, unit);
}

Publisher::Stage::~Stage() {
  // If this fails, the next mount removes the directory.
  if (directory_) (void)sys::remove_tree(staging_, name_);
}

std::string Publisher::Stage::tree_path(const std::string& rest) { return join_path(kTree, rest); }

std::string Publisher::Stage::path_of(const StagedFile& file) const {
  return join_path(unit, file.rest);
}

Status Publisher::Stage::make_directory(const std::string& rest) const {
  return sys::make_dir_at(directory_.get(), tree_path(rest), 0755);
}

Status Publisher::Stage::add_file(StagedFile& file, int source) const {
  const std::string path = tree_path(file.rest);
  // Links a file only if it has one name, because the job could write to it through another name.
  if (file.source.st_nlink == 1) {
    const Status linked = sys::link_fd(source, directory_.get(), path);
    file.is_linked = static_cast<bool>(linked);
    if (linked) return {};
    // The file has lost its name since it was listed.
    if (linked.failed_with(ENOENT)) return Errno(ESTALE);
  }
  // Copies the file if it has other names, or if the file systems do not allow the link.
  CACHESHIM_TRY(target, sys::open_beneath(directory_.get(), path, O_RDWR | O_CREAT | O_EXCL, 0600));
  return copy_file(source, target.get(), {.is_for_base = true, .is_wanted = is_wanted});
}

// Gives the files to the service account, which owns the base: with owner=keep, the previous owner
// could otherwise still write to them. Sets the mode last, because an ACL changes the mode.
//
// A linked file still belongs to the job. seal() holds the overlay's mutex so that no request changes the file's mode
// between the check and set_mode(): otherwise set_mode() could undo a chmod by which the job has withdrawn permissions.
// Errors: ESTALE if the job has changed the mode since the file was staged.
Status Publisher::Stage::seal(const Overlay& overlay) const {
  for (const StagedFile& file : files) {
    if (file.in_base || !file.link_target.empty()) continue;
    const ReaderLock lock(overlay.mutex());
    CACHESHIM_TRY(fd, sys::open_beneath(directory_.get(), tree_path(file.rest),
                                        O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
    CACHESHIM_TRY(now, sys::stat_fd(fd.get()));
    if (file.is_linked && now.st_mode != file.source.st_mode) return Errno(ESTALE);
    if (file.source.st_uid != sys::own_uid() || file.source.st_gid != sys::own_gid()) {
      CACHESHIM_TRY(is_ours, change_owner(fd.get(), sys::own_uid(), sys::own_gid()));
      if (!is_ours) return Errno(EPERM);
    }
    if (file.is_linked) CACHESHIM_CHECK(remove_job_xattrs(fd.get()));
    CACHESHIM_CHECK(sys::set_mode(fd.get(), published_mode(file.source.st_mode, opens_all)));
  }
  return {};
}

bool Publisher::Stage::is_sealed(const StagedFile& file, int object, const struct stat& now) const {
  const mode_t mode = published_mode(file.source.st_mode, opens_all);
  if ((now.st_mode & 07777) != mode || now.st_uid != sys::own_uid()) return false;
  const auto has_any = has_job_xattrs(object);
  return has_any && !*has_any;
}

Status Publisher::Stage::add_symlink(const StagedFile& file) const {
  return sys::make_symlink_at(file.link_target, directory_.get(), tree_path(file.rest));
}

// Starts the writeback of all files before it waits for the first file: the first fsync then commits the
// file system's journal for all files.
Status Publisher::Stage::sync() const {
  std::vector<UniqueFd> opened;
  for (const StagedFile& file : files) {
    if (file.in_base || !file.link_target.empty()) continue;
    CACHESHIM_TRY(fd, sys::open_beneath(directory_.get(), tree_path(file.rest), O_RDONLY));
    (void)::sync_file_range(fd.get(), 0, 0, SYNC_FILE_RANGE_WRITE);  // fsync reports errors
    opened.push_back(std::move(fd));
  }
  for (const UniqueFd& fd : opened) CACHESHIM_CHECK(sys::sync_file(fd.get()));
  for (const std::string& rest : directories) {
    CACHESHIM_TRY(fd, sys::open_beneath(directory_.get(), tree_path(rest), O_RDONLY | O_DIRECTORY));
    CACHESHIM_CHECK(sys::sync_file(fd.get()));
  }
  return {};
}

Status Publisher::Stage::add_digests() {
  for (StagedFile& file : files) {
    if (file.in_base || !file.link_target.empty()) continue;
    CACHESHIM_TRY(fd, sys::open_beneath(directory_.get(), tree_path(file.rest), O_RDONLY));
    CACHESHIM_TRY(digest, digest_of(fd.get(), is_wanted));
    file.digest = std::move(digest);
  }
  return {};
}

Result<bool> Publisher::Stage::are_equal(const StagedFile& file, int source, int theirs) const {
  CACHESHIM_TRY(st, sys::stat_fd(theirs));
  // A job that has made a published file executable must not lose this change.
  if (((st.st_mode ^ file.source.st_mode) & (S_IFMT | S_IXUSR)) != 0) return false;
  if (!file.link_target.empty()) {
    CACHESHIM_TRY(target, sys::read_link_at(theirs, ""));
    return target == file.link_target;
  }
  CACHESHIM_TRY(readable, sys::reopen(theirs, O_RDONLY));
  return have_equal_content(source, readable.get(), is_wanted);
}

}  // namespace cacheshim
