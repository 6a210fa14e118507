// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/runner.h"

#include <err.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/parity/case_list.h"
#include "tests/parity/known_differences.h"

namespace cacheshim::parity {
namespace {

constexpr unsigned kCaseTimeoutSeconds = 30;

char g_running[256];  // the case that the alarm's message names

void on_alarm(int /*signal*/) {
  (void)::write(STDOUT_FILENO, "HANGS: ", 7);
  (void)::write(STDOUT_FILENO, g_running, std::strlen(g_running));
  (void)::write(STDOUT_FILENO, "\n", 1);
  ::_exit(3);
}

bool chosen(const Options& options, const Case& one) {
  return ::fnmatch(options.filter.c_str(), one.name.c_str(), FNM_EXTMATCH) == 0;
}

void make_base_directory(const std::string& parent, const Case& one, uid_t owner) {
  const std::string path = parent + "/" + one.name;
  if (::mkdir(path.c_str(), 0755) != 0 || ::chown(path.c_str(), owner, owner) != 0) {
    err(2, "%s", path.c_str());
  }
  const UniqueFd dir(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  make_base(dir.get(), one.names);
  settle(dir.get(), owner);
}

std::vector<std::string> record(const std::string& parent, const Case& one) {
  Side side(parent + "/" + one.name);
  if (side.dir() < 0) return side.lines();
  make_layer(side, one.names);
  one.body(side);
  side.note("afterwards:");
  side.tree();
  return side.lines();
}

bool answers_enosys(const std::vector<std::string>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("ENOSYS") != std::string::npos;
  });
}

std::string line_at(const std::vector<std::string>& lines, std::size_t index) {
  return index < lines.size() ? lines[index] : "(nothing more)";
}

// Prints the lines that differ, and each equal line directly before them. Prints at most 6 differing lines of each
// side, because one missing line makes all following lines differ. If `verbose` is true, prints all lines.
void report(const Case& one, const std::vector<std::string>& native,
            const std::vector<std::string>& mount, bool verbose) {
  const std::size_t most_shown = verbose ? native.size() + mount.size() : 6;
  std::size_t shown = 0;
  std::printf("DIFFERS: %s\n", one.name.c_str());
  for (std::size_t at = 0; at < std::max(native.size(), mount.size()); ++at) {
    const std::string left = line_at(native, at);
    const std::string right = line_at(mount, at);
    if (left == right) {
      if (verbose || line_at(native, at + 1) != line_at(mount, at + 1)) {
        std::printf("    both:   %s\n", left.c_str());
      }
    } else if (shown++ < most_shown) {
      std::printf("    native: %s\n    mount:  %s\n", left.c_str(), right.c_str());
    }
  }
  if (shown > most_shown) std::printf("    … and %zu more lines\n", shown - most_shown);
}

}  // namespace

int prepare_cases(const Options& options) {
  const CaseList list = all_cases(options.several_users);
  for (const Case& one : list.cases()) {
    if (!chosen(options, one)) continue;
    make_base_directory(options.native, one, options.owner);
    make_base_directory(options.base, one, options.keeps_owners ? options.owner : ::geteuid());
  }
  return 0;
}

int run_cases(const Options& options) {
  (void)std::signal(SIGALRM, on_alarm);
  int count = 0;
  int different = 0;
  const CaseList list = all_cases(options.several_users);
  for (const Case& one : list.cases()) {
    if (!chosen(options, one)) continue;
    (void)std::snprintf(g_running, sizeof g_running, "%s", one.name.c_str());
    (void)::alarm(kCaseTimeoutSeconds);
    const std::vector<std::string> native = record(options.native, one);
    const std::vector<std::string> mount = record(options.view, one);
    (void)::alarm(0);
    ++count;
    if (const char* reason = options.is_plain ? nullptr : find_known_difference(one.name)) {
      std::printf("known: %s: %s\n", one.name.c_str(), reason);
      if (native == mount) {
        ++different;
        std::printf("NO LONGER DIFFERS: %s\n", one.name.c_str());
      }
    } else if (native != mount) {
      ++different;
      report(one, native, mount, options.verbose);
    } else if (answers_enosys(mount)) {
      ++different;
      std::printf("ENOSYS: %s\n", one.name.c_str());
    }
    (void)std::fflush(stdout);
  }
  std::printf("%d cases, %d differ\n", count, different);
  return different;
}

}  // namespace cacheshim::parity
