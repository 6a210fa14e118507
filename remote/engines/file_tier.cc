// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/file_tier.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstring>
#include <initializer_list>
#include <random>
#include <thread>
#include <utility>

#include "common/printable_text.h"
#include "store/sys/sys.h"

namespace cacheshim::remote {
namespace {

using std::chrono::milliseconds;
using Kind = TierError::Kind;
using ServerTime = std::chrono::nanoseconds;  // since 1970, by the file server's clock

constexpr std::size_t kMostKeyBytes = 1024;
constexpr std::size_t kMostOwnerBytes = 256;
constexpr std::size_t kMostNameBytes = 200;
constexpr std::size_t kPrefixBytes = 160;  // of a longer name
constexpr std::string_view kObjectMark = "cacheshim object 1 ";
constexpr std::string_view kLeaseMark = "cacheshim lease 1 ";
constexpr std::size_t kDigits = 16;            // of the number behind either mark
constexpr std::size_t kMostStartBytes = 2048;  // more than any header of an object, and any lease
constexpr std::int64_t kMostTtlMs = std::int64_t{1000} * 3600 * 24 * 365;
constexpr milliseconds kFirstPause{10};
constexpr milliseconds kMostPause{500};
constexpr std::chrono::hours kOldFile{24};
constexpr std::chrono::hours kScanInterval{1};
constexpr std::chrono::seconds kSlowLink{2};
constexpr int kDirectory = O_PATH | O_DIRECTORY;
constexpr int kRead = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;  // opening a FIFO must not block

// ---- errors

// Errors of this engine that no system call on a regular file returns, except for a damaged file.
constexpr int kDamaged = EBADMSG;
constexpr int kOtherKey = ENOTUNIQ;

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

bool is_valid(std::string_view text, std::size_t most_bytes) {
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; };
  return !text.empty() && text.size() <= most_bytes &&
         std::none_of(text.begin(), text.end(), is_control);
}

// ---- names

struct Place {
  std::string shard;
  std::string name;
};

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

Place place_of(const std::string& key) {
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  const std::string digits = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  std::string name;
  for (const char c : key) {
    if (is_plain(c) && !(c == '.' && name.empty())) {
      name += c;
    } else {
      name += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  if (name.size() > kMostNameBytes) name = name.substr(0, kPrefixBytes) + "~" + digits;
  return {digits.substr(0, 2), std::move(name)};
}

// The inverse of place_of() for short names. Returns another text for other names.
std::string decode(const std::string& name) {
  std::string key;
  for (std::size_t at = 0; at < name.size(); ++at) {
    auto code = static_cast<unsigned char>(name[at]);
    if (code == '%' && at + 2 < name.size()) {
      (void)std::from_chars(&name[at + 1], &name[at] + 3, code, 16);  // keyed_by() verifies the key
      at += 2;
    }
    key += static_cast<char>(code);
  }
  return key;
}

template <class Number>
bool parse(std::string_view text, Number& number, int base = 10) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, base);
  return error == std::errc() && rest == end;
}

// ---- files and directories

// As sys::open_beneath(), but asks the file server before it returns ENOENT.
Result<UniqueFd> find(int dir, const std::string& name, int flags) {
  auto found = sys::open_beneath(dir, name, flags);
  if (!found.failed_with(ENOENT)) return found;
  CACHESHIM_CHECK(sys::renew_attributes(dir));
  return sys::open_beneath(dir, name, flags);
}

// The umask may have removed bits. If that cannot be undone, the object belongs to another user, who does it.
void ensure_mode(int fd, mode_t mode) {
  const auto st = sys::stat_fd(fd);
  if (st && (st->st_mode & mode) != mode) (void)sys::set_mode(fd, (st->st_mode & 07777) | mode);
}

struct Root {
  UniqueFd fd;
  mode_t mode;  // permission bits of everything that is created below
};

enum class Missing { kFail, kCreate };

// Opens a directory by the names on the way to it. Errors: ENOENT, if `missing` is kFail.
Result<UniqueFd> open_dirs(const Root& root, std::initializer_list<std::string> names,
                           Missing missing) {
  UniqueFd last;
  for (const std::string& name : names) {
    const int parent = last ? last.get() : root.fd.get();
    auto next = find(parent, name, kDirectory);
    if (next.failed_with(ENOENT) && missing == Missing::kCreate) {
      CACHESHIM_CHECK(sys::ensure_dir_at(parent, name, root.mode));
      next = find(parent, name, kDirectory);
      if (next) ensure_mode(next->get(), root.mode);
    }
    if (!next) return next.error();
    last = *std::move(next);
  }
  return last;
}

// Returns all names in a directory, sorted, as the file server has them.
Result<std::vector<std::string>> names_in(int dir) {
  CACHESHIM_CHECK(sys::renew_attributes(dir));
  CACHESHIM_TRY(entries, sys::list_dir(dir));
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (sys::DirEntry& entry : entries) names.push_back(std::move(entry.name));
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> read_start(int fd) {
  std::string bytes(kMostStartBytes, '\0');
  const ssize_t count = ::pread(fd, bytes.data(), bytes.size(), 0);
  if (count == -1) return Errno::last();
  bytes.resize(static_cast<std::size_t>(count));
  return bytes;
}

// Returns the second line of an object's or a lease's file: the key, or the owner. "" if there is none.
std::string second_line(std::string_view start, std::string_view mark) {
  const std::size_t begin = mark.size() + kDigits + 1;
  if (!start.starts_with(mark) || start.size() < begin) return {};
  const std::size_t end = start.find('\n', begin);
  return end == std::string_view::npos ? std::string()
                                       : std::string(start.substr(begin, end - begin));
}

ServerTime time_of(const timespec& time) {
  constexpr time_t kMost = 9'000'000'000;  // s; so that the sum fits
  return std::chrono::seconds(std::clamp<time_t>(time.tv_sec, 0, kMost)) +
         std::chrono::nanoseconds(time.tv_nsec);
}

Status touch(int fd) {
  constexpr timespec kNow{0, UTIME_NOW};
  const timespec times[2] = {kNow, kNow};
  return sys::set_times(fd, times);
}

Result<ServerTime> modified_at(int fd) {
  CACHESHIM_CHECK(sys::renew_attributes(fd));
  CACHESHIM_TRY(st, sys::stat_fd(fd));
  return time_of(st.st_mtim);
}

// Returns the file server's time. `fd` may also be a directory. In a directory, NFS delegations cannot make the client
// use its own clock (RFC 9754).
Result<ServerTime> touch_and_read_time(int fd) {
  CACHESHIM_CHECK(touch(fd));
  return modified_at(fd);
}

// A new file in tmp/. The destructor removes its name there.
class Staged {
 public:
  // `tmp` must stay open.
  explicit Staged(int tmp) : tmp_(tmp) {}
  ~Staged() {
    file_.reset();  // first, because an NFS client renames an open file instead of removing it
    if (!name_.empty()) (void)sys::unlink_at(tmp_, name_);  // remove_old_files() removes a leftover
  }
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;

  int fd() const { return file_.get(); }

  // Creates the file, writes it and syncs it. The mode includes w, because without ownership of the file, link(2)
  // requires the right to write to it (proc(5), protected_hardlinks); NFS servers can change owners ("all_squash").
  Status write(mode_t mode, std::string_view header, std::string_view body) {
    char host[65] = {};
    (void)::gethostname(host, sizeof host - 1);
    std::random_device random;
    name_ = fmt::format("{}.{}.{:08x}{:08x}", host, ::getpid(), random(), random());
    auto file = sys::open_beneath(tmp_, name_, O_RDWR | O_CREAT | O_EXCL, mode & 0666);
    if (!file) {
      name_.clear();
      return file.error();
    }
    file_ = *std::move(file);
    ensure_mode(file_.get(), mode & 0666);
    CACHESHIM_CHECK(sys::write_all(file_.get(), header));
    CACHESHIM_CHECK(sys::write_all(file_.get(), body));
    return sys::sync_file(file_.get());
  }

  // Gives the file its final name. Errors: EEXIST if another file has the name. If an NFS server's reply is lost, the
  // client repeats the request, and the server may then answer EEXIST because the first request has succeeded.
  Status link_to(int dir, const std::string& name) const {
    const Status linked = sys::link_at(tmp_, name_, dir, name);
    if (linked.failed_with(EEXIST) && sys::is_named(dir, name, file_.get())) return {};
    return linked;
  }

 private:
  const int tmp_;
  std::string name_;
  UniqueFd file_;
};

// ---- objects

std::string object_header(const std::string& key, std::uint64_t size) {
  return fmt::format("{}{:016x}\n{}\n", kObjectMark, size, key);
}

struct StoredObject {
  UniqueFd file;
  std::size_t header_bytes;
  std::size_t size_bytes;
};

// Errors: ENOENT, kOtherKey, kDamaged.
Result<StoredObject> open_object(const Root& root, const std::string& key) {
  const Place place = place_of(key);
  CACHESHIM_TRY(shard, open_dirs(root, {"objects", place.shard}, Missing::kFail));
  CACHESHIM_TRY(file, find(shard.get(), place.name, kRead));
  CACHESHIM_TRY(st, sys::stat_fd(file.get()));
  CACHESHIM_TRY(start, read_start(file.get()));
  const std::size_t header_bytes = object_header(key, 0).size();
  const std::size_t size_bytes = static_cast<std::size_t>(st.st_size) - header_bytes;
  if (start.starts_with(object_header(key, size_bytes))) {
    return StoredObject{std::move(file), header_bytes, size_bytes};
  }
  const std::string other = second_line(start, kObjectMark);
  return Errno(other.empty() || other == key ? kDamaged : kOtherKey);
}

Result<std::optional<std::string>> try_get(const Root& root, const std::string& key,
                                           std::size_t most_bytes) {
  using Nothing = std::optional<std::string>;
  const auto object = open_object(root, key);
  if (object.failed_with(ENOENT) || object.failed_with(kOtherKey)) return Nothing();
  if (!object) return object.error();
  if (object->size_bytes > most_bytes) return Errno(EFBIG);
  const int fd = object->file.get();
  if (::lseek(fd, static_cast<off_t>(object->header_bytes), SEEK_SET) == -1) return Errno::last();
  CACHESHIM_TRY(bytes, sys::read_all(fd, object->size_bytes));
  if (bytes.size() != object->size_bytes) return Errno(kDamaged);
  return std::optional(std::move(bytes));
}

Result<PutOutcome> try_put(const Root& root, int tmp, const std::string& key,
                           std::string_view object) {
  const auto existing = open_object(root, key);
  if (existing) return PutOutcome::kExists;
  if (!existing.failed_with(ENOENT)) return existing.error();
  Staged staged(tmp);
  CACHESHIM_CHECK(staged.write(root.mode, object_header(key, object.size()), object));
  const Place place = place_of(key);
  CACHESHIM_TRY(shard, open_dirs(root, {"objects", place.shard}, Missing::kCreate));
  const auto begin = std::chrono::steady_clock::now();
  const Status linked = staged.link_to(shard.get(), place.name);
  if (linked.failed_with(EEXIST)) {
    CACHESHIM_TRY(other, open_object(root, key));
    return PutOutcome::kExists;
  }
  CACHESHIM_CHECK(linked);
  // A client that sets times itself has read its clock before it sent the request (see "Catalogue").
  if (std::chrono::steady_clock::now() - begin > kSlowLink) (void)touch(shard.get());
  return PutOutcome::kStored;
}

Result<bool> try_remove(const Root& root, const std::string& key) {
  {
    const auto object = open_object(root, key);
    if (object.failed_with(ENOENT) || object.failed_with(kOtherKey)) return false;
    if (!object && !object.failed_with(kDamaged)) return object.error();
  }  // closes the file, because an NFS client renames an open file instead of removing it
  const Place place = place_of(key);
  CACHESHIM_TRY(shard, open_dirs(root, {"objects", place.shard}, Missing::kFail));
  const Status removed = sys::unlink_at(shard.get(), place.name);
  if (!removed && !removed.failed_with(ENOENT)) return removed.error();
  return true;
}

// ---- leases
//
// Invariants:
// - A number belongs to the owner whose link(2) created it. A lease is live while its file is younger than its ttl.
// - The highest number is never removed, so that all later ones are higher. Only the holder of a higher number removes
//   a number.
//
// acquire: (a) If another owner has a live lease, return nothing. (b) Create the number that follows the highest by
// link(2). On EEXIST, another caller has won. (c) Touch the new file. (d) If there is a higher number, or a live lease
// of another owner, set the own ttl to 0 and return nothing. (e) Remove all lower numbers.
// renew: (a) If the highest number is not the owner's, return false. (b) Touch the file. (c) If the lease was too old
// before, or if there is a higher number now, return false. In both cases, first set the ttl of the owner's files to 0.
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
// finds 5 and gives up. At most one of them has the lease. If each finds the other, nobody has it, and both release it.
//
// Race 3, a late release: release() writes only to files that contain the owner, and never to the successor's file.

struct Lease {
  std::uint64_t number = 0;
  std::string owner;
  milliseconds ttl{0};  // 0: released
  ServerTime renewed{0};
};

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
    (void)set_ttl(staged.fd(), milliseconds(0));  // otherwise, the lease is free after the ttl
    return granted ? Result(Nothing()) : granted.error();
  }
  for (const std::uint64_t lower : numbers) {
    (void)sys::unlink_at(dir.get(), fmt::to_string(lower));  // the next holder removes leftovers
  }
  return Nothing(number);
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

// Returns the highest lease that somebody may hold; nothing if the key exists or nobody holds its lease.
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

// ---- the catalogue
//
// A sweep lists the shards in the order of their names, and the names in a shard in their order. It takes one or more
// pages. It reports the objects whose inode changed (ctime) at `since` - slack or later; `since` is the time at which
// the previous sweep began. Not the modification time: that is when the object was written, and the writer may have
// been stopped for any time before it linked the file. link(2) sets the ctime of the file, and of the directory. No
// call can set a ctime back, so a tree that was copied or restored is also reported.
//
// No object is lost:
// 1. The sweep reads the server's clock (`begin`), and only then lists directories.
// 2. An object that was linked before `begin` is in its shard's list. If it was linked after the previous sweep began,
//    the ctimes of file and shard are not older than `since` - slack, so this sweep reports it. If it was linked
//    earlier, an earlier sweep has reported it by the same rule; the first sweep reports all names.
// 3. An object that is linked after `begin` may appear in a part that the sweep has already listed. The next sweep
//    reports it, because its `since` is this `begin`.
// 4. The slack covers what makes a ctime older than the link: the granularity of timestamps; a server that reads its
//    clock before it changes the directory; the difference between the clients' clocks, where clients set times. There,
//    a request can also be delayed after the client has read its clock: try_put() touches the shard if link(2) was
//    slow, and the removal of the name in tmp/ sets the ctime of the file.
// 5. If `since` is later than the clock, the clock was set back, and the sweep reports all names.

struct Sweep {
  ServerTime since{0};  // 0: report everything
  ServerTime begin{0};  // 0: the sweep has not begun
  std::string shard;    // the last name that was examined
  std::string name;
};

std::string position_of(const Sweep& sweep) {
  return fmt::format("{}:{}:{}:{}", sweep.since.count(), sweep.begin.count(), sweep.shard,
                     sweep.name);
}

Sweep parse_position(std::string_view text) {
  std::string_view fields[4];
  for (std::string_view& field : fields) {
    const std::size_t end = std::min(text.find(':'), text.size());
    field = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::int64_t since = 0;
  std::int64_t begin = 0;
  if (!parse(fields[0], since) || !parse(fields[1], begin) || since < 0 || begin < 0) return {};
  return {ServerTime(since), ServerTime(begin), std::string(fields[2]), std::string(fields[3])};
}

// Returns a time that is not later than the server's clock.
Result<ServerTime> sweep_begin(const Root& root, ServerTime since) {
  const auto tmp = open_dirs(root, {"tmp"}, Missing::kFail);
  if (tmp.failed_with(ENOENT)) return since;
  if (!tmp) return tmp.error();
  (void)touch(tmp->get());  // without the right to write, returns about the time of the last put
  return modified_at(tmp->get());
}

// Returns the key of a file in a shard; "" if the file is not an object.
std::string key_of_file(int dir, const std::string& shard, const std::string& name) {
  std::string key;
  if (name.find('~') == std::string::npos) {
    key = decode(name);
  } else if (const auto file = sys::open_beneath(dir, name, kRead)) {
    const auto start = read_start(file->get());
    if (start) key = second_line(*start, kObjectMark);
  }
  const Place place = place_of(key);
  return is_valid(key, kMostKeyBytes) && place.shard == shard && place.name == name ? key : "";
}

// What ends a page.
struct PageLimits {
  std::size_t most;
  std::chrono::steady_clock::time_point deadline;

  bool is_reached(const CataloguePage& page) const {
    return page.keys.size() >= most || std::chrono::steady_clock::now() >= deadline;
  }
};

// Adds the keys of a shard, beginning behind `sweep.name`. Returns false if the page has ended before the shard.
Result<bool> add_shard(int objects, Sweep& sweep, ServerTime oldest, const PageLimits& limits,
                       CataloguePage& page) {
  CACHESHIM_TRY(dir, sys::open_beneath(objects, sweep.shard, kDirectory));
  CACHESHIM_CHECK(sys::renew_attributes(dir.get()));
  CACHESHIM_TRY(st, sys::stat_fd(dir.get()));
  if (time_of(st.st_ctim) < oldest) return true;
  CACHESHIM_TRY(names, names_in(dir.get()));
  for (auto at = std::upper_bound(names.begin(), names.end(), sweep.name); at != names.end();
       ++at) {
    sweep.name = *at;
    // The attributes usually came with the list (READDIRPLUS): forcing a request for each file would take 100 times as
    // long. A client can have older ones only of a file that it has seen in tmp/.
    const auto file = oldest.count() > 0 ? sys::stat_at(dir.get(), *at) : Result(st);
    if (file.failed_with(ENOENT)) continue;
    if (!file) return file.error();
    std::string key =
        time_of(file->st_ctim) < oldest ? "" : key_of_file(dir.get(), sweep.shard, *at);
    if (!key.empty()) page.keys.push_back(std::move(key));
    if (limits.is_reached(page)) return false;
  }
  return true;
}

Result<CataloguePage> try_page(const Root& root, Sweep sweep, milliseconds slack,
                               const PageLimits& limits) {
  CataloguePage page;
  if (sweep.begin.count() == 0) {
    CACHESHIM_TRY(begin, sweep_begin(root, sweep.since));
    sweep.begin = begin;
    if (sweep.since > begin + slack) sweep.since = ServerTime(0);
  }
  const ServerTime oldest = std::max(sweep.since - slack, ServerTime(0));
  const auto objects = open_dirs(root, {"objects"}, Missing::kFail);
  if (!objects && !objects.failed_with(ENOENT)) return objects.error();
  auto shards = objects ? names_in(objects->get()) : std::vector<std::string>();
  if (!shards) return shards.error();
  for (const std::string& shard : *shards) {
    if (shard < sweep.shard || shard.size() != 2) continue;
    if (shard > sweep.shard) sweep.name.clear();
    sweep.shard = shard;
    const auto added = add_shard(objects->get(), sweep, oldest, limits, page);
    if (added.failed_with(ENOENT) || added.failed_with(ENOTDIR)) continue;
    if (!added) return added.error();
    if (!*added) {
      page.position = position_of(sweep);
      page.is_last = false;
      return page;
    }
  }
  page.position = position_of({.since = sweep.begin, .begin = {}, .shard = {}, .name = {}});
  return page;
}

// ---- the shared directory

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

// `device` is the device of `objects` when it was last there.
Root open_root(const std::string& action, const std::string& directory,
               std::optional<dev_t>& device) {
  auto fd = sys::open_path(directory, kDirectory);
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

// Calls `call` with the open directory, and returns the value of its result. Repeats the call until the timeout if
// another machine has removed a file or directory in the middle of it.
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
  if (!is_valid(key, kMostKeyBytes))
    throw error_of(Kind::kRefused, action, directory_, "invalid key");
  return attempt(action, std::forward<Call>(call));
}

std::optional<std::string> FileTier::get(const std::string& key, std::size_t most_bytes) {
  return attempt_key("get", key, [&](const Root& root) { return try_get(root, key, most_bytes); });
}

PutOutcome FileTier::put_if_absent(const std::string& key, std::string_view object) {
  return attempt_key("store", key, [&](const Root& root) -> Result<PutOutcome> {
    CACHESHIM_TRY(tmp, open_dirs(root, {"tmp"}, Missing::kCreate));
    remove_old_files(tmp.get());
    return try_put(root, tmp.get(), key, object);
  });
}

// If this fails, the files stay until the next scan.
void FileTier::remove_old_files(int tmp) {
  if (last_scan_ && Clock::now() - *last_scan_ < kScanInterval) return;
  last_scan_ = Clock::now();
  const auto now = touch_and_read_time(tmp);
  if (!now) return;
  const auto names = names_in(tmp);
  if (!names) return;
  for (const std::string& name : *names) {
    const auto st = sys::stat_at(tmp, name);
    if (st && *now - time_of(st->st_mtim) > kOldFile) (void)sys::unlink_at(tmp, name);
  }
}

bool FileTier::remove(const std::string& key) {
  return attempt_key("remove", key, [&](const Root& root) { return try_remove(root, key); });
}

std::optional<std::uint64_t> FileTier::acquire(const std::string& key, const std::string& owner,
                                               milliseconds ttl) {
  if (!is_valid(owner, kMostOwnerBytes)) {
    throw error_of(Kind::kRefused, "lease a key", directory_, "invalid owner");
  }
  return attempt_key("lease", key,
                     [&](const Root& root) { return try_acquire(root, key, owner, ttl); });
}

bool FileTier::renew(const std::string& key, const std::string& owner, milliseconds ttl) {
  return attempt_key("renew the lease of", key,
                     [&](const Root& root) { return try_renew(root, key, owner, ttl); });
}

void FileTier::release(const std::string& key, const std::string& owner) {
  (void)attempt_key("release", key, [&](const Root& root) -> Result<bool> {
    const Place place = place_of(key);
    const auto dir = open_dirs(root, {"leases", place.shard, place.name}, Missing::kFail);
    if (dir.failed_with(ENOENT)) return false;
    return dir ? release_all(dir->get(), owner) : dir.error();
  });
}

// Decides by this machine's clock whether the lease has expired: it is not renewed for its ttl. Touching a file at each
// poll would load the server.
void FileTier::wait(const std::string& key, milliseconds timeout) {
  const auto deadline = Clock::now() + std::min<milliseconds>(timeout, std::chrono::hours(24));
  std::optional<Lease> seen;
  Clock::time_point seen_at;
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kMostPause)) {
    auto blocker =
        attempt_key("wait for", key, [&](const Root& root) { return find_blocker(root, key); });
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
  const PageLimits limits{most, Clock::now() + timeout_};
  return attempt("list the keys", [&](const Root& root) {
    return try_page(root, parse_position(position), slack_, limits);
  });
}

}  // namespace cacheshim::remote
