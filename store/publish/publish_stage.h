// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/publish/publisher.h"

// Used only by the files of store/publish/ that implement Publisher.
namespace cacheshim {

inline constexpr const char* kOtherVersion =
    "the base has another version of it: first writer wins";

// Returns the version of an object of the base; an empty BaseVersion if there is no object.
BaseVersion version_of(int base, const std::string& path);

struct Publisher::StagedFile {
  std::string rest;         // the path within the unit; "" if the unit is a file itself
  struct stat source {};    // the layer's file when it was staged
  std::string digest;       // for a regular file that is new to the base
  std::string link_target;  // the target of a symlink; "" for a regular file
  bool completes = false;  // completes the entry, so it is added to the base last
  bool is_linked = false;  // staged as a hard link of the layer's file, not as a copy
  bool in_base = false;    // the base already has an equal file
  BaseVersion base;        // the version of the base's file
};

// A unit that is being published, in its own directory in staging. In this directory, "tree" is the unit's directory or
// file, until the publisher moves it into the base. The destructor removes the directory with its remaining contents.
// Not thread-safe.
struct Publisher::Stage {
  static constexpr std::string_view kTree = "tree";
  static Result<Stage> make(int staging, unsigned number, const std::string& unit);
  Stage(Stage&& other) noexcept = default;
  Stage& operator=(Stage&& other) = delete;
  ~Stage();

  static std::string tree_path(const std::string& rest);
  std::string path_of(const StagedFile& file) const;  // the file's path in the base and in the layer

  int directory() const { return directory_.get(); }
  Status make_directory(const std::string& rest) const;
  Status add_file(StagedFile& file, int source) const;
  // Makes the service account the owner of the files, sets their modes for the base, and removes the attributes that a
  // job can set (job_xattrs.h). A staged link is the same inode as the layer's file, so this also changes that file:
  // call it only after all other checks have passed. Errors: EPERM if the owner cannot be changed; ESTALE if the job
  // has changed a linked file's mode since it was staged.
  Status seal(const Overlay& overlay) const EXCLUDES(overlay.mutex());
  // Whether a linked file still has the owner, mode and attributes that seal() gave it: the job can change them until
  // the layer loses the name. `object` is any descriptor of the file.
  bool is_sealed(const StagedFile& file, int object, const struct stat& now) const;
  Status add_symlink(const StagedFile& file) const;
  // Sets the digests of the files that are new to the base. Errors: ECANCELED (slices.h).
  Status add_digests();
  Status sync() const;
  // Whether the base's file `theirs`, an O_PATH descriptor, equals the file to be published, whose
  // content is read from `source`.
  Result<bool> are_equal(const StagedFile& file, int source, int theirs) const;

  std::string unit;       // the unit's path; for an entry of several files, their directory
  bool is_group = false;  // the unit is an entry of several files
  // Whether all users may read the published files, even those that others could not read in the
  // layer.
  bool opens_all = false;
  IsWanted is_wanted;
  UniqueFd upper;  // the layer's directory when the stage was made
  std::vector<StagedFile> files;
  std::vector<std::string> directories;  // parents before children; the unit's own directory is ""
  bool is_new = false;       // the base has no object of this name, or the unit replaces it
  BaseVersion base;          // the base's object when the unit was compared
  std::string why_replaces;  // why the unit replaces the base's entry; "" if it does not
  bool replaces() const { return !why_replaces.empty(); }

 private:
  Stage(int staging, UniqueFd directory, std::string name, std::string unit_path);

  int staging_;
  UniqueFd directory_;
  std::string name_;
};

}  // namespace cacheshim
