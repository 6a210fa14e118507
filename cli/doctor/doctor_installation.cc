// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <set>
#include <system_error>

#include "cli/configuration/config.h"
#include "cli/doctor/doctor.h"
#include "cli/failure.h"
#include "cli/paths.h"
#include "cli/run_environment.h"
#include "common/names.h"
#include "common/unique_fd.h"
#include "store/profiles/profile.h"

namespace cacheshim::cli {
namespace {

void check_config(const DoctorContext& context, Findings& findings) {
  constexpr const char* kCheck = "configuration";
  const std::string path =
      context.config.empty() ? config_dir() + "/cacheshim.toml" : context.config;
  try {
    (void)load_config(context.config);
  } catch (const Failure& failure) {
    return findings.problem(kCheck, path, failure.what(), "correct it: no mount starts with it");
  }
  findings.ok(kCheck, path,
              ::access(path.c_str(), F_OK) == 0 ? "good" : "none: the defaults apply");
}

void check_profiles(const DoctorContext& context, Findings& findings) {
  constexpr const char* kCheck = "profiles";
  const std::string shipped = find_installation().profiles;
  if (::access(shipped.c_str(), R_OK | X_OK) != 0) {
    return findings.problem(kCheck, shipped,
                            std::generic_category().message(errno) + ": nothing can be mounted",
                            "reinstall cacheshim");
  }
  const ProfileSet set = load_profiles(profile_directories(shipped, context.config));
  for (const ProfileError& refused : set.refused) {
    findings.problem(kCheck, "", refused.message + "; mounts work without this profile",
                     "'cacheshim profile check FILE' when it is corrected");
  }
  std::size_t own = 0;
  for (const Profile& profile : set.profiles) own += profile.origin.starts_with(shipped) ? 0U : 1U;
  if (set.refused.empty()) {
    findings.ok(kCheck, shipped, fmt::format("{}, {} of them not shipped", set.profiles.size(), own));
  }
}

// Runs /bin/true with this LD_PRELOAD, and returns the messages that the dynamic loader prints to stderr. If the
// program fails without printing anything, returns a message with its exit status or signal. Returns "" if there is no
// error, or if the program cannot be run.
std::string loader_complaint(const std::string& preload) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "";
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    (void)::dup2(null.get(), STDOUT_FILENO);
    (void)::dup2(writer.get(), STDERR_FILENO);
    const std::string list = "LD_PRELOAD=" + preload;
    char* const words[] = {const_cast<char*>("true"), nullptr};
    char* const environment[] = {const_cast<char*>(list.c_str()),
                                 const_cast<char*>("CACHESHIM_DISABLE=1"), nullptr};
    ::execve("/bin/true", words, environment);
    ::_exit(0);
  }
  writer.reset();
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t count; (count = ::read(reader.get(), buffer.data(), buffer.size())) != 0;) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  int status = 0;
  if (child > 0) (void)::waitpid(child, &status, 0);
  if (text.empty() && WIFSIGNALED(status)) {
    text = fmt::format("a program that preloads it is killed by signal {}", WTERMSIG(status));
  } else if (text.empty() && status != 0) {
    text = fmt::format("a program that preloads it exits with {}", WEXITSTATUS(status));
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

void check_library(Findings& findings) {
  constexpr const char* kCheck = "library";
  const std::string path = find_installation().library;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return findings.problem(
        kCheck, path,
        std::generic_category().message(errno) + ": 'cacheshim run' cannot preload it",
        "reinstall cacheshim");
  }
  if ((status.st_mode & S_IROTH) == 0) {
    return findings.problem(
        kCheck, path,
        fmt::format("mode {:04o}: other users' programs cannot load it", status.st_mode & 07777),
        "'chmod 0644' it");
  }
  if (const std::string complaint = loader_complaint(path); !complaint.empty()) {
    return findings.problem(kCheck, path, complaint,
                            "use the library of this architecture and this libc; programs run "
                            "without it, through the mount");
  }
  findings.ok(kCheck, path, fmt::format("can be loaded; glibc {}", ::gnu_get_libc_version()));
}

bool is_same_file(const std::string& one, const std::string& other) {
  struct stat left {};
  struct stat right {};
  return ::stat(one.c_str(), &left) == 0 && ::stat(other.c_str(), &right) == 0 &&
         left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

void check_preload(Findings& findings) {
  constexpr const char* kCheck = "LD_PRELOAD";
  const std::string list = find_variable("LD_PRELOAD").value_or("");
  const std::string installed = find_installation().library;
  bool has_ours = false;
  for (const std::string& entry : preload_entries(list)) {
    if (!is_our_library(entry)) continue;
    has_ours = true;
    if (entry.find('/') != entry.npos && !is_same_file(entry, installed)) {
      findings.warn(kCheck, entry, fmt::format("is not the installed '{}'", installed),
                    "name that one, or use 'cacheshim run'");
    }
  }
  if (!has_ours) {
    return findings.ok(kCheck, "", "names no libcacheshim.so: 'cacheshim run' sets it for a job");
  }
  if (const std::string complaint = loader_complaint(list); !complaint.empty()) {
    return findings.problem(kCheck, list, complaint, "name the installed one, " + installed);
  }
  findings.ok(kCheck, list, "is loaded");
}

}  // namespace

void check_installation(const DoctorContext& context, Findings& findings) {
  check_config(context, findings);
  check_profiles(context, findings);
  check_library(findings);
  check_preload(findings);
}

}  // namespace cacheshim::cli
