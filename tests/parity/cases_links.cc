// SPDX-License-Identifier: Apache-2.0
// Tests hard links, symlinks, FIFOs and sockets.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tests/parity/case_list.h"

namespace cacheshim::parity {
namespace {

void hard_link(Side& side, const std::string& from, const std::string& to) {
  const int result =
      side.did("link", ::linkat(side.dir(), from.c_str(), side.dir(), to.c_str(), 0));
  side.stat(from);
  side.stat(to);
  if (result != 0) return;
  if (const UniqueFd fd = side.open(to, O_WRONLY)) side.pwrite(fd.get(), "through the link", 3);
  side.contents(from);
  side.did("unlink the first", ::unlinkat(side.dir(), from.c_str(), 0));
  side.stat(to);
  side.contents(to);
}

// rename(2) between two names of one file does nothing.
void rename_between_links(Side& side, const std::string& name) {
  side.did("link", ::linkat(side.dir(), name.c_str(), side.dir(), "twin", 0));
  side.did("rename", ::renameat(side.dir(), name.c_str(), side.dir(), "twin"));
  side.stat(name);
  side.stat("twin");
}

void sym_link(Side& side, const std::string& name) {
  side.did("symlink", ::symlinkat("some/target", side.dir(), name.c_str()));
  side.did("symlink again", ::symlinkat("other", side.dir(), name.c_str()));
  side.did("symlink to nothing", ::symlinkat("", side.dir(), (name + "2").c_str()));
}

void read_link(Side& side, const std::string& name) {
  std::array<char, 256> target;
  const ssize_t length =
      side.did("readlink", ::readlinkat(side.dir(), name.c_str(), target.data(), target.size()));
  if (length > 0) side.note(std::string(target.data(), static_cast<std::size_t>(length)));
  side.did("readlink short", ::readlinkat(side.dir(), name.c_str(), target.data(), 3));
}

// Creates a symlink to the name, and makes calls through the symlink.
void through_link(Side& side, const std::string& name) {
  side.did("symlink", ::symlinkat(name.c_str(), side.dir(), "way"));
  (void)side.open("way", O_RDONLY);
  side.contents("way/a");
  if (const UniqueFd fd = side.open("way", O_WRONLY | O_CREAT)) side.write(fd.get(), "by the way");
  side.did("mkdir", ::mkdirat(side.dir(), "way", 0755));
  side.did("chmod", ::fchmodat(side.dir(), "way", 0640, 0));
  side.stat("way");
}

void long_link(Side& side) {
  for (const std::size_t size : {1000u, 4000u, 4095u, 4096u}) {
    const std::string name = "link" + std::to_string(size);
    side.did("symlink", ::symlinkat(std::string(size, 't').c_str(), side.dir(), name.c_str()));
    side.stat(name);
  }
}

void fifo(Side& side, const std::string& name) {
  if (side.did("mkfifo", ::mkfifoat(side.dir(), name.c_str(), 0644)) != 0) return;
  side.stat(name);
  const UniqueFd both = side.open(name, O_RDWR | O_NONBLOCK);
  if (!both) return;
  side.did("write", ::write(both.get(), "through", 7));
  std::array<char, 16> bytes;
  side.did("read", ::read(both.get(), bytes.data(), bytes.size()));
  side.did("rename", ::renameat(side.dir(), name.c_str(), side.dir(), "fifo2"));
  side.did("unlink", ::unlinkat(side.dir(), "fifo2", 0));
}

// Uses relative names in the working directory, because sun_path is too short for the full path.
void unix_socket(Side& side) {
  const UniqueFd before(::open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  side.did("fchdir", ::fchdir(side.dir()));
  const UniqueFd server(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (void)std::strcpy(address.sun_path, "socket");
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  side.did("bind", ::bind(server.get(), generic, sizeof address));
  side.stat("socket");
  side.did("listen", ::listen(server.get(), 1));
  side.did("connect", ::connect(client.get(), generic, sizeof address));
  side.did("bind again", ::bind(client.get(), generic, sizeof address));
  side.did("open", ::open("socket", O_RDONLY | O_CLOEXEC) < 0 ? -1 : 0);
  side.did("unlink", ::unlink("socket"));
  side.did("fchdir back", ::fchdir(before.get()));
}

const std::vector<std::string>& link_sources() {
  static const std::vector<std::string> names = {
      "base_file", "layer_file", "both_file", "moved_file", "base_dir/a",   "moved_dir/a",
      "gone_file", "absent",     "base_dir",  "base_link",  "base_readonly"};
  return names;
}

const std::vector<std::string>& link_targets() {
  static const std::vector<std::string> names = {
      "absent",     "base_file", "layer_file", "gone_file",   "gone_dir",   "base_dir",
      "base_dir/x", "opaque/a",  "absent/x",   "moved_dir/x", "both_dir/x", "base_link"};
  return names;
}

}  // namespace

void add_link_cases(CaseList& list) {
  list.add_for_pairs("link", link_sources(), link_targets(), hard_link);
  list.add_for_each("rename between links", file_names(), rename_between_links);
  list.add_for_each("symlink", all_names(), sym_link);
  list.add_for_each("readlink", all_names(), read_link);
  list.add_for_each("through a link", all_names(), through_link);
  list.add("long link", {}, long_link);
  list.add_for_each("fifo", all_names(), fifo);
  list.add("unix socket", {}, unix_socket);
}

}  // namespace cacheshim::parity
