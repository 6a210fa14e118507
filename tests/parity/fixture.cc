// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/fixture.h"

#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "tests/parity/acl.h"

namespace cacheshim::parity {
namespace {

void must(bool good, const std::string& what) {
  if (!good) err(2, "fixture: %s", what.c_str());
}

void base_file(int dir, const std::string& name, mode_t mode = 0644, std::size_t size = 10000) {
  const UniqueFd fd(::openat(dir, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  must(static_cast<bool>(fd), name);
  const std::string data = pattern("base " + name, size);
  must(::write(fd.get(), data.data(), data.size()) == static_cast<ssize_t>(data.size()), name);
  must(::fchmod(fd.get(), mode) == 0, name);
}

void base_directory(int dir, const std::string& name) {
  must(::mkdirat(dir, name.c_str(), 0755) == 0, name);
}

void base_link(int dir, const std::string& name, const char* target) {
  must(::symlinkat(target, dir, name.c_str()) == 0, name);
}

void base_directory_with_files(int dir, const std::string& name) {
  base_directory(dir, name);
  base_directory(dir, name + "/sub");
  base_file(dir, name + "/a");
  base_file(dir, name + "/sub/b");
}

void base_acl(int dir, const std::string& name, const char* which) {
  const UniqueFd fd(::openat(dir, name.c_str(), O_RDONLY | O_CLOEXEC));
  const std::string acl = acl_xattr({7, 6, 4, 5, 7, 4});
  must(::fsetxattr(fd.get(), which, acl.data(), acl.size(), 0) == 0, name);
}

void base_directory_with_acls(int dir, const std::string& name) {
  base_directory_with_files(dir, name);
  base_acl(dir, name + "/a", kAccessAcl);
  base_acl(dir, name, kAccessAcl);
  base_acl(dir, name, kDefaultAcl);
}

void new_file(Side& side, const std::string& name, std::size_t size = 5000) {
  if (const UniqueFd fd = side.open(name, O_WRONLY | O_CREAT | O_TRUNC)) {
    side.write(fd.get(), pattern("layer " + name, size));
  }
}

void new_directory(Side& side, const std::string& name) {
  side.did("mkdir(" + name + ")", ::mkdirat(side.dir(), name.c_str(), 0755));
}

void remove(Side& side, const std::string& name, bool directory = false) {
  side.did("remove(" + name + ")",
           ::unlinkat(side.dir(), name.c_str(), directory ? AT_REMOVEDIR : 0));
}

void remove_directory_with_files(Side& side, const std::string& name) {
  remove(side, name + "/a");
  remove(side, name + "/sub/b");
  remove(side, name + "/sub", true);
  remove(side, name, true);
}

void move(Side& side, const std::string& from, const std::string& to) {
  side.did("rename(" + from + ", " + to + ")",
           ::renameat(side.dir(), from.c_str(), side.dir(), to.c_str()));
}

// One top-level name, and the functions that create its state: first in the base, then through the view.
struct State {
  const char* name;
  void (*base)(int dir);
  void (*layer)(Side& side);
};

void nothing(int /*dir*/) {}
void untouched(Side& /*side*/) {}

const State kStates[] = {
    {"absent", nothing, untouched},
    {"base_file", [](int dir) { base_file(dir, "base_file"); }, untouched},
    {"base_readonly", [](int dir) { base_file(dir, "base_readonly", 0444); }, untouched},
    {"layer_file", nothing, [](Side& side) { new_file(side, "layer_file"); }},
    {"both_file", [](int dir) { base_file(dir, "both_file"); },
     [](Side& side) {
       if (const UniqueFd fd = side.open("both_file", O_WRONLY)) side.pwrite(fd.get(), "new", 6000);
     }},
    {"replaced_file", [](int dir) { base_file(dir, "replaced_file"); },
     [](Side& side) {
       new_file(side, "replaced_file.new");
       move(side, "replaced_file.new", "replaced_file");
     }},
    {"moved_file", [](int dir) { base_file(dir, "moved_file.old"); },
     [](Side& side) { move(side, "moved_file.old", "moved_file"); }},
    {"gone_file", [](int dir) { base_file(dir, "gone_file"); },
     [](Side& side) { remove(side, "gone_file"); }},
    {"base_dir", [](int dir) { base_directory_with_files(dir, "base_dir"); }, untouched},
    {"base_empty_dir", [](int dir) { base_directory(dir, "base_empty_dir"); }, untouched},
    {"layer_dir", nothing,
     [](Side& side) {
       new_directory(side, "layer_dir");
       new_file(side, "layer_dir/a");
     }},
    {"layer_empty_dir", nothing, [](Side& side) { new_directory(side, "layer_empty_dir"); }},
    {"both_dir", [](int dir) { base_directory_with_files(dir, "both_dir"); },
     [](Side& side) { new_file(side, "both_dir/upper"); }},
    {"emptied_dir", [](int dir) { base_directory_with_files(dir, "emptied_dir"); },
     [](Side& side) {
       remove(side, "emptied_dir/a");
       remove(side, "emptied_dir/sub/b");
       remove(side, "emptied_dir/sub", true);
     }},
    {"gone_dir", [](int dir) { base_directory_with_files(dir, "gone_dir"); },
     [](Side& side) { remove_directory_with_files(side, "gone_dir"); }},
    {"opaque", [](int dir) { base_directory_with_files(dir, "opaque"); },
     [](Side& side) {
       remove_directory_with_files(side, "opaque");
       new_directory(side, "opaque");
       new_file(side, "opaque/new");
     }},
    {"moved_dir", [](int dir) { base_directory_with_files(dir, "moved_dir.old"); },
     [](Side& side) { move(side, "moved_dir.old", "moved_dir"); }},
    {"file_now_dir", [](int dir) { base_file(dir, "file_now_dir"); },
     [](Side& side) {
       remove(side, "file_now_dir");
       new_directory(side, "file_now_dir");
     }},
    {"dir_now_file", [](int dir) { base_directory_with_files(dir, "dir_now_file"); },
     [](Side& side) {
       remove_directory_with_files(side, "dir_now_file");
       new_file(side, "dir_now_file");
     }},
    {"base_link",
     [](int dir) {
       base_file(dir, "base_link.target");
       base_link(dir, "base_link", "base_link.target");
     },
     untouched},
    {"base_dir_link",
     [](int dir) {
       base_directory_with_files(dir, "base_dir_link.target");
       base_link(dir, "base_dir_link", "base_dir_link.target");
     },
     untouched},
    {"layer_link", nothing,
     [](Side& side) {
       new_file(side, "layer_link.target");
       side.did("symlink(layer_link)", ::symlinkat("layer_link.target", side.dir(), "layer_link"));
     }},
    {"dangling_link", [](int dir) { base_link(dir, "dangling_link", "dangling_link.target"); },
     untouched},
    {"base_acl_file",
     [](int dir) {
       base_file(dir, "base_acl_file");
       base_acl(dir, "base_acl_file", kAccessAcl);
     },
     untouched},
    {"base_acl_dir", [](int dir) { base_directory_with_acls(dir, "base_acl_dir"); }, untouched},
    {"loop", [](int dir) { base_link(dir, "loop", "loop"); }, untouched},
};

std::set<std::string> top_components(const std::vector<std::string>& names) {
  std::set<std::string> tops;
  for (const std::string& name : names) {
    std::string top = name.substr(0, name.find('/'));
    // "x.old" belongs to the state of "x", which moves "x.old" to "x".
    if (top.ends_with(".old")) top.resize(top.size() - 4);
    tops.insert(top);
  }
  return tops;
}

std::vector<std::string> joined(std::initializer_list<std::vector<std::string>> lists) {
  std::vector<std::string> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

const std::vector<std::string>& file_names() {
  static const std::vector<std::string> names = {
      "base_file",    "base_readonly",  "layer_file",     "both_file",  "replaced_file",
      "moved_file",   "base_dir/a",     "both_dir/a",     "opaque/new", "moved_dir/a",
      "dir_now_file", "base_dir/sub/b", "moved_dir/sub/b"};
  return names;
}

const std::vector<std::string>& directory_names() {
  static const std::vector<std::string> names = {
      "base_dir",     "base_empty_dir", "layer_dir",    "layer_empty_dir",
      "both_dir",     "emptied_dir",    "opaque",       "moved_dir",
      "file_now_dir", "base_dir/sub",   "moved_dir/sub"};
  return names;
}

const std::vector<std::string>& absent_names() {
  static const std::vector<std::string> names = {
      "absent",     "gone_file",        "gone_dir",    "opaque/a",      "emptied_dir/a",
      "base_dir/x", "layer_dir/absent", "moved_dir/x", "moved_dir.old", "file_now_dir/x"};
  return names;
}

const std::vector<std::string>& special_names() {
  static const std::vector<std::string> names = {
      "base_link",  "base_dir_link",   "layer_link",    "dangling_link",
      "loop",       "base_dir_link/a", "absent/x",      "base_file/x",
      "gone_dir/a", "loop/x",          "dir_now_file/a"};
  return names;
}

const std::vector<std::string>& acl_names() {
  static const std::vector<std::string> names = {"base_acl_file", "base_acl_dir", "base_acl_dir/a",
                                                 "base_acl_dir/sub/b"};
  return names;
}

const std::vector<std::string>& all_names() {
  static const std::vector<std::string> names =
      joined({file_names(), directory_names(), absent_names(), special_names()});
  return names;
}

void make_base(int dir, const std::vector<std::string>& names) {
  for (const std::string& top : top_components(names)) {
    for (const State& state : kStates) {
      if (top == state.name) state.base(dir);
    }
  }
}

void make_layer(Side& side, const std::vector<std::string>& names) {
  for (const std::string& top : top_components(names)) {
    for (const State& state : kStates) {
      if (top == state.name) state.layer(side);
    }
  }
}

void settle(int dir, uid_t owner) {
  DIR* stream = ::fdopendir(::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  must(stream != nullptr, "fdopendir");
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (entry->d_type == DT_DIR) {
      const UniqueFd sub(::openat(dir, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      must(static_cast<bool>(sub), name);
      settle(sub.get(), owner);
    }
    const timespec past[2] = {{1'500'000'000, 111'222'333}, {1'500'000'001, 444'555'666}};
    must(::fchownat(dir, name.c_str(), owner, owner, AT_SYMLINK_NOFOLLOW) == 0, name);
    must(::utimensat(dir, name.c_str(), past, AT_SYMLINK_NOFOLLOW) == 0, name);
  }
  (void)::closedir(stream);
}

}  // namespace cacheshim::parity
