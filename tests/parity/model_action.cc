// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/model_action.h"

#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <iterator>
#include <sstream>

namespace cacheshim::parity {
namespace {

using Do = void (*)(Side& side, const std::string& first, const std::string& second, unsigned n);

void create(Side& side, const std::string& first, const std::string&, unsigned n) {
  if (const UniqueFd fd = side.open(first, O_WRONLY | O_CREAT | O_TRUNC)) {
    side.write(fd.get(), pattern("created", n % 9000));
  }
}

void create_exclusive(Side& side, const std::string& first, const std::string&, unsigned) {
  (void)side.open(first, O_WRONLY | O_CREAT | O_EXCL);
}

void write_at(Side& side, const std::string& first, const std::string&, unsigned n) {
  if (const UniqueFd fd = side.open(first, O_RDWR)) {
    side.pwrite(fd.get(), pattern("written", n % 700), static_cast<off_t>(n % 12000));
  }
}

void append(Side& side, const std::string& first, const std::string&, unsigned n) {
  if (const UniqueFd fd = side.open(first, O_WRONLY | O_APPEND)) {
    side.write(fd.get(), pattern("appended", n % 300));
  }
}

void truncate(Side& side, const std::string& first, const std::string&, unsigned n) {
  side.did("truncate", ::truncate(side.path_of(first).c_str(), static_cast<off_t>(n % 15000)));
}

void unlink(Side& side, const std::string& first, const std::string&, unsigned) {
  side.did("unlink", ::unlinkat(side.dir(), first.c_str(), 0));
}

void mkdir(Side& side, const std::string& first, const std::string&, unsigned) {
  side.did("mkdir", ::mkdirat(side.dir(), first.c_str(), 0755));
}

void rmdir(Side& side, const std::string& first, const std::string&, unsigned) {
  side.did("rmdir", ::unlinkat(side.dir(), first.c_str(), AT_REMOVEDIR));
}

void rename(Side& side, const std::string& first, const std::string& second, unsigned) {
  side.did("rename", ::renameat(side.dir(), first.c_str(), side.dir(), second.c_str()));
}

void noreplace(Side& side, const std::string& first, const std::string& second, unsigned) {
  side.did("rename NOREPLACE",
           ::renameat2(side.dir(), first.c_str(), side.dir(), second.c_str(), RENAME_NOREPLACE));
}

void exchange(Side& side, const std::string& first, const std::string& second, unsigned) {
  side.did("rename EXCHANGE",
           ::renameat2(side.dir(), first.c_str(), side.dir(), second.c_str(), RENAME_EXCHANGE));
}

void link(Side& side, const std::string& first, const std::string& second, unsigned) {
  side.did("link", ::linkat(side.dir(), first.c_str(), side.dir(), second.c_str(), 0));
}

void symlink(Side& side, const std::string& first, const std::string& second, unsigned) {
  side.did("symlink", ::symlinkat(second.c_str(), side.dir(), first.c_str()));
}

void chmod(Side& side, const std::string& first, const std::string&, unsigned n) {
  const mode_t mode = 0700 | (n & 077);
  side.did("chmod", ::fchmodat(side.dir(), first.c_str(), mode, 0));
}

void set_times(Side& side, const std::string& first, const std::string&, unsigned n) {
  const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000 + static_cast<time_t>(n), 7}};
  side.did("utimens", ::utimensat(side.dir(), first.c_str(), times, AT_SYMLINK_NOFOLLOW));
}

void set_attribute(Side& side, const std::string& first, const std::string&, unsigned n) {
  const std::string value = std::to_string(n);
  side.did("setxattr",
           ::setxattr(side.path_of(first).c_str(), "user.model", value.data(), value.size(), 0));
}

void get_attribute(Side& side, const std::string& first, const std::string&, unsigned) {
  std::array<char, 64> value;
  side.did("getxattr",
           ::getxattr(side.path_of(first).c_str(), "user.model", value.data(), value.size()));
}

void read(Side& side, const std::string& first, const std::string&, unsigned) {
  side.contents(first);
}

void stat(Side& side, const std::string& first, const std::string&, unsigned) { side.stat(first); }

void list(Side& side, const std::string& first, const std::string&, unsigned) { side.list(first); }

// Replaces a file as caches do: writes a new file and renames it over the old one.
void replace(Side& side, const std::string& first, const std::string&, unsigned n) {
  if (const UniqueFd fd = side.open(first + ".new", O_WRONLY | O_CREAT | O_TRUNC)) {
    side.write(fd.get(), pattern("replaced", n % 5000));
  }
  side.did("replace", ::renameat(side.dir(), (first + ".new").c_str(), side.dir(), first.c_str()));
}

constexpr struct {
  const char* name;
  Do action;
  unsigned weight;
  bool two_names;
} kKinds[] = {
    {"create", create, 6, false},
    {"create-exclusive", create_exclusive, 2, false},
    {"write", write_at, 5, false},
    {"append", append, 3, false},
    {"truncate", truncate, 2, false},
    {"unlink", unlink, 6, false},
    {"mkdir", mkdir, 6, false},
    {"rmdir", rmdir, 5, false},
    {"rename", rename, 10, true},
    {"noreplace", noreplace, 2, true},
    {"exchange", exchange, 2, true},
    {"link", link, 3, true},
    {"symlink", symlink, 2, true},
    {"chmod", chmod, 3, false},
    {"utimens", set_times, 2, false},
    {"setxattr", set_attribute, 2, false},
    {"getxattr", get_attribute, 2, false},
    {"read", read, 4, false},
    {"stat", stat, 3, false},
    {"list", list, 3, false},
    {"replace", replace, 4, false},
};

unsigned random_kind(std::mt19937& random) {
  unsigned total = 0;
  for (const auto& kind : kKinds) total += kind.weight;
  unsigned left = static_cast<unsigned>(random() % total);
  for (unsigned index = 0;; ++index) {
    if (left < kKinds[index].weight) return index;
    left -= kKinds[index].weight;
  }
}

}  // namespace

std::string random_model_name(std::mt19937& random) {
  std::string name;
  for (auto depth = random() % 3 + 1; depth > 0; --depth) {
    const bool last = depth == 1;
    const auto letter = static_cast<char>('a' + random() % 5);
    name += (last && random() % 3 != 0 ? "f" : "d") + std::string(1, letter);
    if (!last) name += "/";
  }
  return name;
}

ModelAction ModelAction::random(std::mt19937& random) {
  ModelAction action;
  action.kind_ = random_kind(random);
  action.first_ = random_model_name(random);
  action.second_ = random_model_name(random);
  action.number_ = static_cast<unsigned>(random() % 65536);
  return action;
}

ModelAction ModelAction::parse(const std::string& text) {
  std::istringstream words(text);
  std::string kind;
  ModelAction action;
  char mark = 0;
  words >> kind >> action.first_;
  while (action.kind_ < std::size(kKinds) && kKinds[action.kind_].name != kind) ++action.kind_;
  if (action.kind_ == std::size(kKinds)) errx(2, "no such action: %s", text.c_str());
  if (kKinds[action.kind_].two_names) words >> action.second_;
  if (!(words >> mark >> action.number_) || mark != '#') errx(2, "bad action: %s", text.c_str());
  return action;
}

void ModelAction::carry_out(Side& side) const {
  kKinds[kind_].action(side, first_, second_, number_);
}

bool ModelAction::fits_a_base() const {
  return kKinds[kind_].action != link && kKinds[kind_].action != chmod;
}

std::string ModelAction::text() const {
  std::string all = std::string(kKinds[kind_].name) + " " + first_;
  if (kKinds[kind_].two_names) all += " " + second_;
  return all + " #" + std::to_string(number_);
}

}  // namespace cacheshim::parity
