// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/file_tier_leases.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "remote/engines/file_tier_layout.h"
#include "remote/engines/file_tier_objects.h"
#include "store/sys/sys.h"

// Invariants:
// - A number belongs to the owner whose link(2) created it. A lease is live while its file is younger than its ttl.
// - The highest number is never removed, so that all later ones are higher. Only the holder of a higher number removes
//   a number.
//
// acquire: (a) If another owner has a live lease, return nothing. (b) Create the number that follows the highest by
// link(2). On EEXIST, another caller has won: return nothing. (c) Touch the new file. (d) If there is a higher number,
// or a live lease of another owner, set the ttl of the new file to 0 and return nothing. (e) Remove all lower numbers.
// renew: (a) If the highest number is not the owner's, return false. (b) Touch the file. (c) If the lease was too old
// before, or if there is a higher number now, return false. Before each return of false, set the ttl of the owner's
// files to 0.
//
// Race 1, a number that is used twice:
// 1. X lists: the highest is 4. X is then stopped.
// 2. Y creates 5 and releases it. Z creates 6, and removes 4 and 5.
// 3. X creates 5, because that name is free. Step (d) finds 6, so X does not get the lease. A number that was granted
//    is removed only if there is a higher one, so step (d) always detects this race.
//
// Race 2, a holder that renews in the same instant in which its lease expires:
// 1. Y finds that X's lease, number 4, has expired.
// 2. X touches 4.
// 3. Y creates 5.
// X first touches and then lists; Y first creates and then reads the age of 4. If X does not find 5, then X's list came
// before step 3, so Y finds 4 touched and withdraws. If Y does not find 4 touched, then step 3 came before step 2, so X
// finds 5 and gives up. At most one of them has the lease. If each finds the other's change, both release the lease.
//
// Race 3, a late release: release() writes only to files that contain the owner, and never to the successor's file.
namespace cacheshim::remote::file_tier {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kMostTtlMs = std::int64_t{1000} * 3600 * 24 * 365;

std::string ttl_text(milliseconds ttl) {
  return fmt::format("{:016x}", std::clamp<std::int64_t>(ttl.count(), 0, kMostTtlMs));
}

milliseconds at_least_one(milliseconds ttl) { return std::max(ttl, milliseconds(1)); }

Status set_ttl(int file, milliseconds ttl) {
  const std::string text = ttl_text(ttl);
  const auto written = ::pwrite(file, text.data(), text.size(), off_t{kLeaseMark.size()});
  if (written == -1) return Errno::last();
  if (static_cast<std::size_t>(written) != text.size()) return Errno(EIO);
  return sys::sync_file(file);
}

Result<UniqueFd> open_lease(int dir, std::uint64_t number) {
  return sys::open_beneath(dir, fmt::to_string(number), kRead);
}

// A damaged file counts as released.
Result<Lease> read_lease(int file, std::uint64_t number) {
  CACHESHIM_TRY(renewed, modified_at(file));
  CACHESHIM_TRY(start, read_start(file));
  Lease lease{number, second_line(start, kLeaseMark), milliseconds(0), renewed};
  std::int64_t ttl_ms = 0;
  if (!lease.owner.empty() && parse(start.substr(kLeaseMark.size(), kDigits), ttl_ms, 16)) {
    lease.ttl = milliseconds(std::clamp<std::int64_t>(ttl_ms, 0, kMostTtlMs));
  }
  return lease;
}

// Returns the numbers in a lease's directory, in ascending order.
Result<std::vector<std::uint64_t>> lease_numbers(int dir) {
  CACHESHIM_TRY(names, names_in(dir));
  std::vector<std::uint64_t> numbers;
  for (const std::string& name : names) {
    std::uint64_t number = 0;
    if (parse(name, number)) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// Returns the leases that were not released and do not belong to `owner`. Skips those that disappear meanwhile.
Result<std::vector<Lease>> leases_of_others(int dir, const std::vector<std::uint64_t>& numbers,
                                            std::string_view owner) {
  std::vector<Lease> leases;
  for (const std::uint64_t number : numbers) {
    const auto file = open_lease(dir, number);
    auto lease = file ? read_lease(file->get(), number) : Result<Lease>(file.error());
    if (lease.failed_with(ENOENT) || lease.failed_with(ESTALE)) continue;
    if (!lease) return lease.error();
    if (lease->ttl.count() > 0 && lease->owner != owner) leases.push_back(*std::move(lease));
  }
  return leases;
}

bool is_any_live(const std::vector<Lease>& leases, ServerTime now) {
  return std::any_of(leases.begin(), leases.end(),
                     [&](const Lease& lease) { return now - lease.renewed < lease.ttl; });
}

// Steps (c) and (d) of acquire.
Result<bool> confirm(int dir, int file, std::uint64_t number, const std::string& owner) {
  CACHESHIM_TRY(now, touch_and_read_time(file));
  CACHESHIM_TRY(numbers, lease_numbers(dir));
  if (numbers.empty() || numbers.back() != number) return false;
  CACHESHIM_TRY(others, leases_of_others(dir, numbers, owner));
  return !is_any_live(others, now);
}

// Opens the lease `number` for writing if it belongs to `owner` and was not released. Errors: ENOENT otherwise.
Result<UniqueFd> open_own(int dir, std::uint64_t number, const std::string& owner, Lease& lease) {
  CACHESHIM_TRY(file, open_lease(dir, number));
  CACHESHIM_TRY(found, read_lease(file.get(), number));
  if (found.owner != owner || found.ttl.count() == 0) return Errno(ENOENT);
  lease = std::move(found);
  return sys::reopen(file.get(), O_RDWR);
}

Result<bool> release_all(int dir, const std::string& owner) {
  CACHESHIM_TRY(numbers, lease_numbers(dir));
  for (const std::uint64_t number : numbers) {
    Lease lease;
    const auto file = open_own(dir, number, owner, lease);
    if (file.failed_with(ENOENT) || file.failed_with(ESTALE)) continue;
    if (!file) return file.error();
    CACHESHIM_CHECK(set_ttl(file->get(), milliseconds(0)));
  }
  return true;
}

// Steps (a) to (c) of renew. Errors: ENOENT if the highest number is not the owner's.
Result<bool> extend(int dir, const std::string& owner, milliseconds ttl) {
  CACHESHIM_TRY(numbers, lease_numbers(dir));
  if (numbers.empty()) return Errno(ENOENT);
  Lease lease;
  CACHESHIM_TRY(file, open_own(dir, numbers.back(), owner, lease));
  if (ttl != lease.ttl) CACHESHIM_CHECK(set_ttl(file.get(), ttl));
  CACHESHIM_TRY(now, touch_and_read_time(file.get()));
  if (now - lease.renewed >= lease.ttl) return false;
  CACHESHIM_TRY(later, lease_numbers(dir));
  return !later.empty() && later.back() == lease.number;
}

}  // namespace

Result<std::optional<std::uint64_t>> try_acquire(const Root& root, const std::string& key,
                                                 const std::string& owner, milliseconds ttl) {
  using Nothing = std::optional<std::uint64_t>;
  const Place place = place_of(key);
  CACHESHIM_TRY(tmp, open_dirs(root, {"tmp"}, Missing::kCreate));
  CACHESHIM_TRY(dir, open_dirs(root, {"leases", place.shard, place.name}, Missing::kCreate));
  CACHESHIM_TRY(numbers, lease_numbers(dir.get()));
  CACHESHIM_TRY(others, leases_of_others(dir.get(), numbers, owner));
  if (!others.empty()) {
    CACHESHIM_TRY(now, touch_and_read_time(tmp.get()));
    if (is_any_live(others, now)) return Nothing();
  }
  const std::uint64_t number = numbers.empty() ? 1 : numbers.back() + 1;
  Staged staged(tmp.get());
  const std::string header = fmt::format("{}{}\n", kLeaseMark, ttl_text(at_least_one(ttl)));
  CACHESHIM_CHECK(staged.write(root.mode, header, owner + "\n"));
  const Status linked = staged.link_to(dir.get(), fmt::to_string(number));
  if (linked.failed_with(EEXIST)) return Nothing();
  CACHESHIM_CHECK(linked);
  const auto granted = confirm(dir.get(), staged.fd(), number, owner);
  if (!granted || !*granted) {
    (void)set_ttl(staged.fd(), milliseconds(0));  // if this fails, the lease expires after the ttl
    return granted ? Result(Nothing()) : granted.error();
  }
  for (const std::uint64_t lower : numbers) {
    (void)sys::unlink_at(dir.get(), fmt::to_string(lower));  // the next holder removes leftovers
  }
  return Nothing(number);
}

Result<bool> try_renew(const Root& root, const std::string& key, const std::string& owner,
                       milliseconds ttl) {
  const Place place = place_of(key);
  const auto dir = open_dirs(root, {"leases", place.shard, place.name}, Missing::kFail);
  if (dir.failed_with(ENOENT)) return false;
  if (!dir) return dir.error();
  const auto extended = extend(dir->get(), owner, at_least_one(ttl));
  if (!extended && !extended.failed_with(ENOENT)) return extended.error();
  if (extended && *extended) return true;
  CACHESHIM_CHECK(release_all(dir->get(), owner));
  return false;
}

Result<bool> try_release(const Root& root, const std::string& key, const std::string& owner) {
  const Place place = place_of(key);
  const auto dir = open_dirs(root, {"leases", place.shard, place.name}, Missing::kFail);
  if (dir.failed_with(ENOENT)) return false;
  return dir ? release_all(dir->get(), owner) : dir.error();
}

Result<std::optional<Lease>> find_blocker(const Root& root, const std::string& key) {
  using Nothing = std::optional<Lease>;
  const auto object = open_object(root, key);
  if (object) return Nothing();
  if (!object.failed_with(ENOENT) && !object.failed_with(kOtherKey)) return object.error();
  const Place place = place_of(key);
  const auto dir = open_dirs(root, {"leases", place.shard, place.name}, Missing::kFail);
  if (dir.failed_with(ENOENT)) return Nothing();
  if (!dir) return dir.error();
  CACHESHIM_TRY(numbers, lease_numbers(dir->get()));
  CACHESHIM_TRY(leases, leases_of_others(dir->get(), numbers, ""));
  if (leases.empty()) return Nothing();
  return std::optional(std::move(leases.back()));
}

}  // namespace cacheshim::remote::file_tier
