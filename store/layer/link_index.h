// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/result.h"
#include "common/unique_fd.h"

namespace cacheshim {

// Keeps hard links of the base together across copy-up: records each base file with several names
// if this layer has copied up or hidden one of them.
//
// When the first name of a file with several names is copied up, the index keeps a hard link to the copy, under a key
// made from the base file's identity. From then on, the view shows the copy at the file's other names in the base.
// Copying up another name links that name to the copy. The record also has the number of the base's names that are
// still visible (neither copied up nor hidden). This number plus the number of the copy's names in the layer is the
// file's st_nlink. If names of a file have been hidden, but none has been copied up, the record has no copy.
//
// On disk: a directory in the layer's work directory that contains "copy.<key>.<names left>", the
// link, or "none.<key>.<names left>", an empty file. Each change is one rename(2), link(2) or
// open(2). A crash between the calls of one copy-up can leave the count one too high, but never
// leaves a name without its data. Similar to overlayfs's index=on (overlayfs.rst, "Non-standard
// behavior"). Not thread-safe: protected by Overlay::mutex().
class LinkIndex {
 public:
  static constexpr const char* kDirectory = "index";

  struct File {
    nlink_t names_left = 0;  // the base's names that are neither copied up nor hidden
    bool has_copy = false;
    dev_t device = 0;  // the copy's file system
    ino_t inode = 0;
  };

  // Returns a key that identifies the file during its lifetime. It is a hash of the file handle,
  // which is the same after a remount. On a file system without file handles, it is a hash of the
  // device and inode number, and a remount may change the device. `object` may be an O_PATH
  // descriptor; `lower` is LowerStack::Object::lower of the file.
  static Result<std::string> key_of(int object, std::size_t lower);

  // Reads the records in the work directory `work`, which must stay open.
  Status load(int work);
  void clear();  // call when the overlay loses its layer
  bool is_empty() const { return files_.empty(); }
  // Calls `function(directory, name, inode)` for each copy.
  template <class Function>
  void for_each_copy(Function&& function) const {
    for (const auto& [inode, key] : keys_) {
      function(directory_.get(), file_name(key, files_.at(key)), inode);
    }
  }

  const File* find(const std::string& key) const;  // null if there is none
  // Open and stat the copy of a file. Require: find(key)->has_copy.
  Result<UniqueFd> open_copy(const std::string& key, int flags) const;
  Result<struct stat> stat_copy(const std::string& key) const;
  // Sets st_nlink of an object in the layer to its number of names in the merged view.
  void correct_links(struct stat& st) const;

  // Records `name` in `directory` as the copy of a base file. `names` as for take_name().
  Status add_copy(const std::string& key, nlink_t names, int directory, const std::string& name);
  // Links the copy to another name in the layer.
  Status link_copy(const std::string& key, int directory, const std::string& name) const;
  // Call when one of the file's names in the base was copied up or hidden. `names` is the number of
  // names that the file had before; it is used only if the file is not recorded yet.
  Status take_name(const std::string& key, nlink_t names);
  // Removes the record of the file whose copy is this inode, if the file has no name left in the base or in the layer.
  // Returns true if it removed the record.
  bool forget_if_gone(dev_t device, ino_t inode);

 private:
  static std::string file_name(const std::string& key, const File& file);
  Status ensure_directory();
  Status set_names_left(const std::string& key, File& file, nlink_t names_left);
  void load_file(const std::string& name);

  int work_ = -1;
  UniqueFd directory_;  // created when the first file is recorded
  std::map<std::string, File> files_;
  // Maps the copies' inode numbers to keys. All copies are on one file system.
  std::unordered_map<ino_t, std::string> keys_;
};

}  // namespace cacheshim
