// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/calls.h"

namespace calls {
namespace {

void stat_path(const char* path) {
  struct stat plain;
  struct stat64 large;
  show_stat(CALL(stat, path, &plain), plain);
  show_stat(CALL(stat64, path, &large), large);
  show_stat(CALL(lstat, path, &plain), plain);
  show_stat(CALL(lstat64, path, &large), large);
  show_stat(CALL(__xstat, kStatVersion, path, &plain), plain);
  show_stat(CALL(__xstat64, kStatVersion, path, &large), large);
  show_stat(CALL(__lxstat, kStatVersion, path, &plain), plain);
  show_stat(CALL(__lxstat64, kStatVersion, path, &large), large);
  show_stat(CALL(fstatat, AT_FDCWD, path, &plain, 0), plain);
  show_stat(CALL(fstatat64, -1, path, &large, AT_SYMLINK_NOFOLLOW), large);
  show_stat(CALL(__fxstatat, kStatVersion, AT_FDCWD, path, &plain, 0), plain);
  show_stat(CALL(__fxstatat64, kStatVersion, AT_FDCWD, path, &large, AT_SYMLINK_NOFOLLOW), large);
  struct statx extended;
  if (CALL(statx, AT_FDCWD, path, 0, STATX_BASIC_STATS, &extended) == 0) {
    say("  mode " + std::to_string(extended.stx_mode));
  }
}

void ask_access(const char* path) {
  for (const int mode : {F_OK, R_OK | X_OK}) {
    (void)CALL(access, path, mode);
    (void)CALL(faccessat, AT_FDCWD, path, mode, 0);
    (void)CALL(eaccess, path, mode);
    (void)CALL(euidaccess, path, mode);
  }
}

void probe_file_system(const char* path) {
  struct statfs plain;
  struct statfs64 large;
  struct statvfs plain_v;
  struct statvfs64 large_v;
  (void)CALL(statfs, path, &plain);
  (void)CALL(statfs64, path, &large);
  (void)CALL(__statfs, path, &plain);
  (void)CALL(statvfs, path, &plain_v);
  (void)CALL(statvfs64, path, &large_v);
  (void)CALL(pathconf, path, _PC_PATH_MAX);
  (void)CALL(pathconf, path, _PC_PRIO_IO);  // returns -1 and keeps errno: there is no limit
  (void)CALL(pathconf, path, -1);
}

}  // namespace

void run_stat_calls() {
  write_file(at("stat"), "twelve bytes");
  if (::symlink("stat", at("stat-link").c_str()) != 0) say("no symlink");
  if (::symlink("nowhere", at("dangling").c_str()) != 0) say("no symlink");
  for (const char* name : {"stat", "stat-link", "dangling", "missing", "stat/x", "."}) {
    stat_path(at(name).c_str());
    ask_access(at(name).c_str());
    probe_file_system(at(name).c_str());
  }
  stat_path(nullptr);
  stat_path("");
  ask_access(nullptr);
  struct stat status;
  show_stat(CALL(fstatat, STDIN_FILENO, "", &status, AT_SYMLINK_NOFOLLOW), status);
}

}  // namespace calls
