// SPDX-License-Identifier: Apache-2.0
// Tests rename(2) and renameat2(2) between names in every state.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tests/parity/case_list.h"

namespace cacheshim::parity {
namespace {

const std::vector<std::string>& sources() {
  static const std::vector<std::string> names = {
      "base_file",  "layer_file",    "both_file",      "moved_file",  "gone_file",
      "base_dir/a", "base_dir",      "base_empty_dir", "layer_dir",   "layer_empty_dir",
      "both_dir",   "moved_dir",     "opaque",         "emptied_dir", "base_link",
      "absent",     "moved_dir/sub", "dir_now_file",   "file_now_dir"};
  return names;
}

const std::vector<std::string>& targets() {
  static const std::vector<std::string> names = {
      "absent",           "base_file",      "layer_file",   "both_file",       "gone_file",
      "base_dir",         "base_empty_dir", "layer_dir",    "layer_empty_dir", "both_dir",
      "emptied_dir",      "gone_dir",       "opaque",       "base_dir/x",      "base_dir/a",
      "layer_dir/absent", "moved_dir/x",    "opaque/a",     "base_link",       "dangling_link",
      "absent/x",         "base_file/x",    "moved_dir.old"};
  return names;
}

// Records the state of both names after a rename, and whether new objects can be created below the
// new name and at the old name.
void check_after(Side& side, const std::string& from, const std::string& to) {
  side.stat(from);
  side.stat(to);
  side.contents(to + "/sub/b");
  (void)side.open(to + "/put-after", O_WRONLY | O_CREAT);
  side.did("mkdir at the old name", ::mkdirat(side.dir(), from.c_str(), 0755));
  side.list(from);
}

void rename_with(Side& side, const std::string& from, const std::string& to, unsigned flags) {
  const char* what = flags == 0 ? "rename" : flags == RENAME_NOREPLACE ? "noreplace" : "exchange";
  const int result =
      side.did(what, ::renameat2(side.dir(), from.c_str(), side.dir(), to.c_str(), flags));
  if (result == 0) check_after(side, from, to);
}

void rename_open_file(Side& side, const std::string& name) {
  const UniqueFd reader = side.open(name, O_RDONLY);
  const UniqueFd writer = side.open(name, O_RDWR);
  side.did("rename", ::renameat(side.dir(), name.c_str(), side.dir(), "renamed"));
  if (reader) side.contents(reader.get());
  if (writer) side.pwrite(writer.get(), "after the rename", 5);
  if (reader) side.contents(reader.get());
  if (writer) side.did("fchmod", ::fchmod(writer.get(), 0600));
  side.contents("renamed");
}

// Renames another file over an open file. The descriptor must still show the old bytes.
void replace_open_file(Side& side, const std::string& name) {
  const UniqueFd reader = side.open(name, O_RDONLY);
  if (const UniqueFd fd = side.open("new", O_WRONLY | O_CREAT)) side.write(fd.get(), "the new one");
  side.did("rename", ::renameat(side.dir(), "new", side.dir(), name.c_str()));
  if (reader) {
    side.contents(reader.get());
    side.fstat(reader.get(), "of the replaced file");
  }
  side.contents(name);
}

void rename_chain(Side& side, const std::string& name) {
  std::string now = name;
  for (const char* next : {"first", "second", "third"}) {
    side.did("rename", ::renameat(side.dir(), now.c_str(), side.dir(), next));
    now = next;
  }
  side.did("rename back", ::renameat(side.dir(), now.c_str(), side.dir(), name.c_str()));
}

}  // namespace

void add_rename_cases(CaseList& list) {
  for (const unsigned flags : {0u, 1u * RENAME_NOREPLACE, 1u * RENAME_EXCHANGE}) {
    const char* what = flags == 0 ? "rename" : flags == RENAME_NOREPLACE ? "noreplace" : "exchange";
    list.add_for_pairs(what, sources(), targets(),
                       [flags](Side& side, const std::string& from, const std::string& to) {
                         rename_with(side, from, to, flags);
                       });
  }
  list.add_for_each("rename open file", file_names(), rename_open_file);
  list.add_for_each("replace open file", file_names(), replace_open_file);
  list.add_for_each("rename chain", all_names(), rename_chain);
  list.add_for_each(
      "rename into itself", directory_names(), [](Side& side, const std::string& name) {
        side.did("rename",
                 ::renameat(side.dir(), name.c_str(), side.dir(), (name + "/in").c_str()));
      });
  list.add_for_each("rename to itself", all_names(), [](Side& side, const std::string& name) {
    side.did("rename", ::renameat(side.dir(), name.c_str(), side.dir(), name.c_str()));
  });
}

}  // namespace cacheshim::parity
