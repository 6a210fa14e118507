// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/calls.h"

namespace calls {
namespace {

// Writes to the descriptor that CALL has printed, closes it, and prints the file's content. CALL
// prints the descriptor's number, so the test detects a descriptor that the library leaks.
void use(int fd, const std::string& path) {
  if (fd < 0) return;
  if (::write(fd, "bytes", 5) != 5) say("cannot write");
  ::close(fd);
  say("  holds " + content(path));
}

void use(FILE* stream, const std::string& path) {
  if (stream == nullptr) return;
  std::fputs("text", stream);
  std::fclose(stream);
  say("  holds " + content(path));
}

void open_plain() {
  const std::string file = at("open");
  const int create = O_CREAT | O_EXCL | O_WRONLY;
#define TRY_OPEN(name)                                           \
  use(CALL(name, file.c_str(), create, 0640), file);             \
  (void)CALL(name, file.c_str(), create, 0640);                  \
  ::close(CALL(name, file.c_str(), O_RDONLY));                   \
  (void)CALL(name, at("missing").c_str(), O_RDONLY);             \
  (void)CALL(name, at("missing/x").c_str(), create, 0600);       \
  (void)CALL(name, static_cast<const char*>(nullptr), O_RDONLY); \
  ::close(CALL(name, root.c_str(), O_RDONLY | O_DIRECTORY));     \
  forget(file);
  TRY_OPEN(open)
  TRY_OPEN(open64)
  TRY_OPEN(__open)
  TRY_OPEN(__open64)
#undef TRY_OPEN
  use(CALL(creat, file.c_str(), 0600u), file);
  use(CALL(creat64, file.c_str(), 0600u), file);
  (void)CALL(creat, at("missing/x").c_str(), 0600u);
  use(CALL(__open_2, file.c_str(), O_WRONLY), file);
  use(CALL(__open64_2, file.c_str(), O_WRONLY), file);
  (void)CALL(__open_2, at("missing").c_str(), O_RDONLY);
}

void open_relative_to_descriptors() {
  const std::string file = at("openat");
  const int directory = ::open(root.c_str(), O_RDONLY | O_DIRECTORY);
#define TRY_OPENAT(name)                                                \
  use(CALL(name, directory, "openat", O_CREAT | O_WRONLY, 0600), file); \
  use(CALL(name, AT_FDCWD, file.c_str(), O_WRONLY), file);              \
  use(CALL(name, -1, file.c_str(), O_WRONLY), file);                    \
  (void)CALL(name, -1, "openat", O_WRONLY);                             \
  (void)CALL(name, directory, "missing", O_RDONLY);
  TRY_OPENAT(openat)
  TRY_OPENAT(openat64)
#undef TRY_OPENAT
  use(CALL(__openat_2, AT_FDCWD, file.c_str(), O_WRONLY), file);
  use(CALL(__openat64_2, AT_FDCWD, file.c_str(), O_WRONLY), file);
  ::close(directory);
}

void open_streams() {
  const std::string file = at("stream");
#define TRY_FOPEN(name)                           \
  use(CALL(name, file.c_str(), "w"), file);       \
  use(CALL(name, file.c_str(), "a"), file);       \
  use(CALL(name, file.c_str(), "r+"), file);      \
  (void)CALL(name, at("missing").c_str(), "r");   \
  (void)CALL(name, at("missing/x").c_str(), "w"); \
  (void)CALL(name, file.c_str(), "bad mode");
  TRY_FOPEN(fopen)
  TRY_FOPEN(fopen64)
#undef TRY_FOPEN
#define TRY_FREOPEN(name)                                                     \
  use(CALL(name, file.c_str(), "w", std::fopen("/dev/null", "r")), file);     \
  (void)CALL(name, at("missing").c_str(), "r", std::fopen("/dev/null", "r")); \
  std::fclose(CALL(name, static_cast<const char*>(nullptr), "r", std::fopen(file.c_str(), "r+")));
  TRY_FREOPEN(freopen)
  TRY_FREOPEN(freopen64)
#undef TRY_FREOPEN
}

// Opens paths with doubled slashes, ".", ".." and trailing slashes, and a path that is too long.
void open_by_other_spellings() {
  write_file(at("spelled"), "x");
  ::mkdir(at("sub").c_str(), 0700);
  for (const std::string& path :
       {"/" + root + "//spelled", root + "/./spelled", root + "/sub/../spelled",
        root + "/../" + root.substr(root.rfind('/') + 1) + "/spelled", "/usr/.." + at("spelled"),
        root + "/spelled/", root + "/sub/../../missing", root + "/."}) {
    const int fd = CALL(open, path.c_str(), O_RDONLY);
    if (fd >= 0) ::close(fd);
  }
  const std::string long_path = at(std::string(PATH_MAX, 'x').c_str());
  (void)CALL(open, long_path.c_str(), O_RDONLY);
}

}  // namespace

void run_open_calls() {
  open_plain();
  open_relative_to_descriptors();
  open_streams();
  open_by_other_spellings();
}

}  // namespace calls
