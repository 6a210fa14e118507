// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/file_tier.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "common/printable_text.h"
#include "common/result.h"
#include "remote/engines/file_tier_catalogue.h"
#include "remote/engines/file_tier_files.h"
#include "remote/engines/file_tier_layout.h"
#include "remote/engines/file_tier_leases.h"
#include "remote/engines/file_tier_objects.h"
#include "store/sys/sys.h"

namespace cacheshim::remote {
namespace {

using file_tier::kDamaged;
using file_tier::kOtherKey;
using file_tier::Root;
using std::chrono::milliseconds;
using Kind = TierError::Kind;

constexpr std::size_t kMostOwnerBytes = 256;
constexpr milliseconds kFirstPause{10};
constexpr milliseconds kMostPause{500};
constexpr std::chrono::hours kOldFile{24};
constexpr std::chrono::hours kScanInterval{1};

Kind kind_of(Errno error) {
  constexpr int kFull[] = {ENOSPC, EDQUOT, EMLINK};
  constexpr int kRefused[] = {EACCES,       EPERM,      EROFS, EXDEV,    ELOOP,    ENOTDIR,
                              ENAMETOOLONG, EOPNOTSUPP, EFBIG, kDamaged, kOtherKey};
  const auto contains = [&](const auto& codes) {
    return std::find(std::begin(codes), std::end(codes), error.code()) != std::end(codes);
  };
  if (contains(kFull)) return Kind::kFull;
  return contains(kRefused) ? Kind::kRefused : Kind::kUnavailable;
}

std::string text_of(Errno error) {
  if (error == kDamaged) return "its file is damaged";
  if (error == kOtherKey) return "another key has the same file name";
  return std::strerror(error.code());
}

TierError error_of(Kind kind, const std::string& action, const std::string& directory,
                   const std::string& reason) {
  return {kind, fmt::format("cannot {} in the shared directory '{}': {}", action,
                            printable(directory), reason)};
}

// Returns the device of the directory `objects`; nothing if it does not exist.
std::optional<dev_t> device_of_objects(int root) {
  const auto st = sys::stat_at(root, "objects");
  return st ? std::optional(st->st_dev) : std::nullopt;
}

// Opens the directory and updates `device`, the device of `objects` when it last existed.
Root open_root(const std::string& action, const std::string& directory,
               std::optional<dev_t>& device) {
  auto fd = sys::open_path(directory, file_tier::kDirectory);
  if (fd.failed_with(ENOENT)) {
    throw error_of(Kind::kUnavailable, action, directory,
                   "the directory does not exist; is its file system mounted?");
  }
  const auto st = fd ? sys::stat_fd(fd->get()) : fd.error();
  if (!st) throw error_of(kind_of(st.error()), action, directory, text_of(st.error()));
  const auto objects = device_of_objects(fd->get());
  if (objects) {
    device = objects;
  } else if (device && *device != st->st_dev) {
    throw error_of(Kind::kUnavailable, action, directory,
                   "it is on another file system than before, without 'objects'; "
                   "is its file system mounted?");
  }
  return {*std::move(fd), st->st_mode & 0777};
}

}  // namespace

FileTier::FileTier(std::string directory, milliseconds timeout, milliseconds slack)
    : directory_(std::move(directory)), timeout_(timeout), slack_(slack) {}

// Calls `call` with the open directory, and returns the value of its result. Until the timeout, repeats a call during
// which another machine has removed a file or directory (ESTALE, ENOENT).
template <class Call>
auto FileTier::attempt(const std::string& action, Call&& call) {
  const auto deadline = Clock::now() + timeout_;
  for (auto pause = kFirstPause;; pause *= 2) {
    const Root root = open_root(action, directory_, device_);
    auto result = call(root);
    if (result) {
      if (!device_) device_ = device_of_objects(root.fd.get());
      return *std::move(result);
    }
    const bool is_transient = result.failed_with(ESTALE) || result.failed_with(ENOENT);
    if (!is_transient || Clock::now() + pause >= deadline) {
      const Errno error = result.error();
      throw error_of(kind_of(error), action, directory_, text_of(error));
    }
    std::this_thread::sleep_for(pause);
  }
}

template <class Call>
auto FileTier::attempt_key(const char* verb, const std::string& key, Call&& call) {
  const std::string action = fmt::format("{} '{}'", verb, printable(key));
  if (!file_tier::is_valid(key, file_tier::kMostKeyBytes))
    throw error_of(Kind::kRefused, action, directory_, "invalid key");
  return attempt(action, std::forward<Call>(call));
}

std::optional<std::string> FileTier::get(const std::string& key, std::size_t most_bytes) {
  return attempt_key("get", key,
                     [&](const Root& root) { return file_tier::try_get(root, key, most_bytes); });
}

PutOutcome FileTier::put_if_absent(const std::string& key, std::string_view object) {
  return attempt_key("store", key, [&](const Root& root) -> Result<PutOutcome> {
    CACHESHIM_TRY(tmp, file_tier::open_dirs(root, {"tmp"}, file_tier::Missing::kCreate));
    remove_old_files(tmp.get());
    return file_tier::try_put(root, tmp.get(), key, object);
  });
}

// If this fails, the files stay until the next scan.
void FileTier::remove_old_files(int tmp) {
  if (last_scan_ && Clock::now() - *last_scan_ < kScanInterval) return;
  last_scan_ = Clock::now();
  const auto now = file_tier::touch_and_read_time(tmp);
  if (!now) return;
  const auto names = file_tier::names_in(tmp);
  if (!names) return;
  for (const std::string& name : *names) {
    const auto st = sys::stat_at(tmp, name);
    if (st && *now - file_tier::time_of(st->st_mtim) > kOldFile) (void)sys::unlink_at(tmp, name);
  }
}

bool FileTier::remove(const std::string& key) {
  return attempt_key("remove", key,
                     [&](const Root& root) { return file_tier::try_remove(root, key); });
}

std::optional<std::uint64_t> FileTier::acquire(const std::string& key, const std::string& owner,
                                               milliseconds ttl) {
  if (!file_tier::is_valid(owner, kMostOwnerBytes)) {
    throw error_of(Kind::kRefused, "lease a key", directory_, "invalid owner");
  }
  return attempt_key("lease", key, [&](const Root& root) {
    return file_tier::try_acquire(root, key, owner, ttl);
  });
}

bool FileTier::renew(const std::string& key, const std::string& owner, milliseconds ttl) {
  return attempt_key("renew the lease of", key,
                     [&](const Root& root) { return file_tier::try_renew(root, key, owner, ttl); });
}

void FileTier::release(const std::string& key, const std::string& owner) {
  (void)attempt_key("release", key,
                    [&](const Root& root) { return file_tier::try_release(root, key, owner); });
}

// Decides by this machine's clock whether the lease has expired: no owner has renewed it for its ttl. To read the
// server's clock, each poll would have to touch a file, which would load the server.
void FileTier::wait(const std::string& key, milliseconds timeout) {
  const auto deadline = Clock::now() + std::min<milliseconds>(timeout, std::chrono::hours(24));
  std::optional<file_tier::Lease> seen;
  Clock::time_point seen_at;
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kMostPause)) {
    auto blocker = attempt_key(
        "wait for", key, [&](const Root& root) { return file_tier::find_blocker(root, key); });
    if (!blocker || (seen && blocker->number != seen->number)) return;
    const auto now = Clock::now();
    if (!seen || blocker->renewed != seen->renewed || blocker->ttl != seen->ttl) {
      seen = std::move(blocker);
      seen_at = now;
    }
    if (now >= deadline || now - seen_at >= seen->ttl) return;
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - now));
  }
}

CataloguePage FileTier::keys_since(const std::string& position, std::size_t most) {
  const file_tier::PageLimits limits{most, Clock::now() + timeout_};
  return attempt("list the keys", [&](const Root& root) {
    return file_tier::try_page(root, position, slack_, limits);
  });
}

}  // namespace cacheshim::remote
