// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/calls.h"

namespace calls {
namespace {

std::string from;
std::string to;
const char* a() { return from.c_str(); }
const char* b() { return to.c_str(); }

void prepare() {
  forget(to);
  write_file(from, "moved");
}

void move_names() {
  from = at("from");
  to = at("to");
  const int directory = ::open(root.c_str(), O_RDONLY | O_DIRECTORY);
#define TRY_MOVE(...)      \
  prepare();               \
  (void)CALL(__VA_ARGS__); \
  say("  from " + content(from) + ", to " + content(to));
  TRY_MOVE(rename, a(), b())
  TRY_MOVE(renameat, AT_FDCWD, a(), -1, b())
  TRY_MOVE(renameat, directory, "from", AT_FDCWD, b())
  TRY_MOVE(renameat, AT_FDCWD, a(), directory, "to")
  TRY_MOVE(renameat2, AT_FDCWD, a(), AT_FDCWD, b(), 0u)
  TRY_MOVE(link, a(), b())
  TRY_MOVE(linkat, AT_FDCWD, a(), directory, "to", 0)
  TRY_MOVE(symlink, "from", b())
  TRY_MOVE(symlinkat, "from", AT_FDCWD, b())
  TRY_MOVE(symlinkat, "from", directory, "to")
#undef TRY_MOVE
  (void)CALL(rename, at("missing").c_str(), b());
  (void)CALL(rename, a(), at("missing/x").c_str());
  (void)CALL(rename, static_cast<const char*>(nullptr), b());
  (void)CALL(rename, a(), static_cast<const char*>(nullptr));
  (void)CALL(renameat2, AT_FDCWD, a(), AT_FDCWD, b(), 1u);  // RENAME_NOREPLACE
  (void)CALL(link, a(), b());
  (void)CALL(symlink, "x", b());
  ::close(directory);
}

void make_and_remove() {
  const std::string file = at("node");
  const std::string directory = at("directory");
  dev_t none = 0;
#define TRY_MAKE(path, remover, ...)      \
  (void)CALL(__VA_ARGS__);                \
  (void)CALL(__VA_ARGS__);                \
  (void)CALL(access, path.c_str(), F_OK); \
  remover;                                \
  (void)CALL(access, path.c_str(), F_OK);
  TRY_MAKE(directory, (void)CALL(rmdir, directory.c_str()), mkdir, directory.c_str(), 0750u)
  TRY_MAKE(directory, (void)CALL(remove, directory.c_str()), mkdirat, AT_FDCWD, directory.c_str(),
           0750u)
  TRY_MAKE(file, (void)CALL(unlink, file.c_str()), mknod, file.c_str(), S_IFREG | 0600u, none)
  TRY_MAKE(file, (void)CALL(remove, file.c_str()), mknodat, AT_FDCWD, file.c_str(), S_IFREG | 0600u,
           none)
  TRY_MAKE(file, (void)CALL(unlinkat, AT_FDCWD, file.c_str(), 0), __xmknod, 0, file.c_str(),
           S_IFREG | 0600u, &none)
  TRY_MAKE(file, (void)CALL(unlinkat, -1, file.c_str(), 0), __xmknodat, 0, AT_FDCWD, file.c_str(),
           S_IFREG | 0600u, &none)
  TRY_MAKE(file, (void)CALL(unlink, file.c_str()), mkfifo, file.c_str(), 0600u)
  TRY_MAKE(file, (void)CALL(unlink, file.c_str()), mkfifoat, AT_FDCWD, file.c_str(), 0600u)
#undef TRY_MAKE
}

void fail_to_change() {
  const std::string missing = at("missing/x");
  (void)CALL(mkdir, missing.c_str(), 0700u);
  (void)CALL(mkdir, static_cast<const char*>(nullptr), 0700u);
  (void)CALL(mkdir, root.c_str(), 0700u);
  (void)CALL(rmdir, at("missing").c_str());
  (void)CALL(unlink, at("missing").c_str());
  (void)CALL(remove, at("missing").c_str());
  (void)CALL(unlinkat, AT_FDCWD, at("missing").c_str(), AT_REMOVEDIR);
  write_file(at("full"), "x");
  (void)CALL(rmdir, at("full").c_str());
  (void)CALL(mkfifo, at("full").c_str(), 0600u);
}

void cut() {
  const std::string file = at("cut");
  write_file(file, "0123456789");
  (void)CALL(truncate, file.c_str(), 5L);
  say("  holds " + content(file));
  (void)CALL(truncate64, file.c_str(), 3L);
  say("  holds " + content(file));
  (void)CALL(truncate, at("missing").c_str(), 0L);
  (void)CALL(truncate64, file.c_str(), -1L);
}

}  // namespace

void run_namespace_calls() {
  move_names();
  make_and_remove();
  fail_to_change();
  cut();
}

}  // namespace calls
