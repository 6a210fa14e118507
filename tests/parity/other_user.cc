// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/other_user.h"

#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace cacheshim::parity {
namespace {

bool become(const User& user) {
  return ::setgroups(user.groups.size(), user.groups.data()) == 0 &&
         ::setresgid(user.gid, user.gid, user.gid) == 0 &&
         ::setresuid(user.uid, user.uid, user.uid) == 0 && ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
}

[[noreturn]] void work(Side& side, const User& user, const std::function<void(Side&)>& body,
                       int pipe) {
  if (!become(user)) ::_exit(2);
  (void)::umask(022);
  const std::size_t before = side.lines().size();
  body(side);
  std::string said;
  for (std::size_t at = before; at < side.lines().size(); ++at) said += side.lines()[at] + '\0';
  const auto whole = static_cast<ssize_t>(said.size());
  ::_exit(::write(pipe, said.data(), said.size()) == whole ? 0 : 2);
}

std::string read_all(int fd) {
  std::string all;
  std::array<char, 4096> piece;
  for (ssize_t count; (count = ::read(fd, piece.data(), piece.size())) > 0;) {
    all.append(piece.data(), static_cast<std::size_t>(count));
  }
  return all;
}

}  // namespace

void as_user(Side& side, const User& user, const std::function<void(Side&)>& body) {
  side.note(std::string("as ") + user.name + ":");
  std::array<int, 2> ends;
  if (::pipe(ends.data()) != 0) return side.note("no pipe");
  const pid_t child = ::fork();
  if (child == 0) work(side, user, body, ends[1]);
  (void)::close(ends[1]);
  const UniqueFd reader(ends[0]);
  const std::string said = read_all(reader.get());
  for (std::size_t at = 0; at < said.size();) {
    const std::size_t end = said.find('\0', at);
    side.note("  " + said.substr(at, end - at));
    at = end + 1;
  }
  int status = 0;
  (void)::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) side.note("the process failed");
}

}  // namespace cacheshim::parity
