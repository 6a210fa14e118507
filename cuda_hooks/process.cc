// SPDX-License-Identifier: Apache-2.0
#include "cuda_hooks/process.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#include <cstring>

#include "common/loaded_symbol.h"
#include "common/names.h"
#include "common/unique_fd.h"
#include "cuda_hooks/loading_variable.h"

namespace cacheshim::cuda {
namespace {

enum State { kNotStarted, kStarting, kStarted };
constinit std::atomic<int> state{kNotStarted};
constinit Plan the_plan;
constinit char defaults_text[kMaxCudaDefaults] = {};
constinit char match_text[kMaxCudaMatch] = {};
constinit char refused_text[64] = {};

// Text of limited size, assembled without allocating.
template <std::size_t kCapacity>
class FixedText {
 public:
  FixedText& operator+=(std::string_view part) {
    fits_ = fits_ && part.size() < kCapacity - size_;
    if (!fits_ || part.empty()) return *this;
    std::memcpy(text_ + size_, part.data(), part.size());
    size_ += part.size();
    text_[size_] = '\0';
    return *this;
  }
  const char* c_str() const { return text_; }
  std::string_view view() const { return {text_, size_}; }
  bool fits() const { return fits_; }

 private:
  char text_[kCapacity] = {};
  std::size_t size_ = 0;
  bool fits_ = true;
};

// Copies `text` to `buffer`, truncated if necessary, and makes `text` refer to the copy, because the
// environment may change later.
template <std::size_t kCapacity>
void keep(std::string_view& text, char (&buffer)[kCapacity]) {
  const std::size_t size = text.size() < kCapacity ? text.size() : kCapacity - 1;
  if (size > 0) std::memcpy(buffer, text.data(), size);
  buffer[size] = '\0';
  text = {buffer, size};
}

// Appends the mount's path in the form from which the run directory's name is derived: without
// repeated slashes and without a slash at the end.
template <std::size_t kCapacity>
void append_normalised(FixedText<kCapacity>& out, std::string_view path) {
  for (std::size_t i = 0; i < path.size(); ++i) {
    const bool slash = path.data()[i] == '/';
    const bool last_of_row = slash && (i + 1 == path.size() || path.data()[i + 1] == '/');
    if (!last_of_row) out += {path.data() + i, 1};
  }
}

// Reads the file of defaults in the run directory into `defaults_text`. Returns its length; 0 if
// there is none.
std::size_t read_defaults(std::string_view base, std::string_view directory) {
  FixedText<PATH_MAX> path;
  ((path += base) += "/") += kRunDirName;
  (((path += "/") += directory) += "/") += kCudaDefaultsFile;
  if (base.empty() || !path.fits()) return 0;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return 0;
  const ssize_t got = ::read(file.get(), defaults_text, sizeof defaults_text);
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

// Returns the configuration's settings for this program. Does not read the file if the process's
// environment sets a policy.
CudaDefault find_defaults(const Environment& environment) {
  if (!environment.find(kCudaEagerVariable).empty()) return {};
  FixedText<PATH_MAX> mount;
  const std::string_view given = environment.find(kMountVariable);
  append_normalised(mount, given.empty() ? kDefaultMountPoint : given);
  char escaped[NAME_MAX];
  const std::size_t length =
      mount.fits() ? escape_mount_path(mount.view(), escaped, sizeof escaped) : 0;
  if (length == 0) return {};
  std::size_t size = read_defaults(kRunBase, {escaped, length});
  // Not for root: root's daemons do not use XDG_RUNTIME_DIR, which another user may have set (common/root_process.h).
  if (size == 0 && ::geteuid() != 0 && ::getuid() != 0) {
    size = read_defaults(environment.find("XDG_RUNTIME_DIR"), {escaped, length});
  }
  return find_cuda_default({defaults_text, size}, ::program_invocation_short_name);
}

void start_once() {
  const int entry_errno = errno;
  const ProcessEnvironment environment;
  const std::string_view disabled = environment.find(kDisableVariable);
  const bool is_disabled = !disabled.empty() && std::strcmp(disabled.data(), "0") != 0;
  const bool is_ours = is_marked_program(kProgramMark);
  if (::getauxval(AT_SECURE) != 0 || is_disabled || is_ours) {
    the_plan = make_disabled_plan(environment);
  } else {
    the_plan = make_plan(environment, find_defaults(environment));
  }
  keep(the_plan.match, match_text);
  keep(the_plan.refused_policy, refused_text);
  set_loading_at_start(the_plan.loading);
  errno = entry_errno;
}

}  // namespace

void start() {
  int expected = kNotStarted;
  if (state.compare_exchange_strong(expected, kStarting, std::memory_order_acquire)) {
    start_once();
    state.store(kStarted, std::memory_order_release);
  }
  while (state.load(std::memory_order_acquire) != kStarted) (void)::sched_yield();
}

const Plan& plan() {
  if (state.load(std::memory_order_acquire) != kStarted) [[unlikely]]
    start();
  return the_plan;
}

}  // namespace cacheshim::cuda
