// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "remote/engines/remote_tier.h"

namespace cacheshim::remote {

// The engine for sites that have a shared file system (NFS, Lustre) and no service. Everything is below one directory:
//
//   objects/SHARD/NAME    an object: "cacheshim object 1 SIZE\nKEY\n", then SIZE bytes; never changes. SIZE has 16
//                         hexadecimal digits.
//   leases/SHARD/NAME/N   a lease: "cacheshim lease 1 TTL\nOWNER\n". N is the fencing number. TTL is in milliseconds,
//                         with 16 hexadecimal digits; 0 means that the lease was released.
//   tmp/HOST.PID.RANDOM   a file without its final name yet. A FileTier's first put_if_absent(), and then one in each
//                         hour, removes files that are more than a day old by the file server's clock.
//
// NAME is the key, with each byte except A-Z a-z 0-9 _ - . as %XX. A '.' at the beginning is also encoded. If that is
// longer than 200 bytes, NAME is its first 160 bytes, '~', and the key's xxh3-128 in hexadecimal. SHARD is the first
// two digits of this hash, so that no directory becomes too large: some file servers limit a directory to 64,000
// subdirectories.
//
// Every object's file begins with the key and the size, even if NAME contains the whole key, to detect two faults:
// - Two keys have the same NAME, because their hashes are equal or the file system ignores case. The second key counts
//   as absent, and storing it is kRefused. The hash is not cryptographic, because a user who can write here can also
//   store a wrong object under any key.
// - A server has truncated the file in a crash (NFS, the export option "async"). get() and put_if_absent() then throw
//   kRefused, and remove() removes the file.
//
// The directory:
// - The administrator creates it. If it is missing, every call throws kUnavailable, because its file system may not be
//   mounted, and a new directory below the mount point would fill the wrong disk. For the same reason, name a directory
//   below the mount point and not the mount point itself. A process that has used the directory throws kUnavailable if
//   `objects` is gone and the directory is on another file system than before.
// - It must be on one file system that has hard links. A project quota must not separate its subdirectories (EXDEV).
// - Its mode applies to all that is created here: subdirectories get at least its permission bits, and files get its
//   bits without x, whatever the umask is. For example, 2770 shares it within a group. All users who may write to it
//   must trust each other.
// - Objects may be removed at any time by any means. Files in leases/ must stay while any process uses the directory;
//   without them, fencing numbers would begin again at 1. One small file remains for each key that ever had a lease.
//
// Time. Leases and the catalogue use the file server's clock: the modification time of a file or directory that this
// process has just touched without giving a time (SET_TO_SERVER_TIME in sattr3 of RFC 1813, SET_TO_SERVER_TIME4 in
// RFC 8881). Some file systems use the client's clock instead: Lustre, CephFS, and NFS 4.2 with delegated timestamps
// (RFC 9754). There, the machines' clocks must agree: to much less than the ttl for leases, to less than kSlack for the
// catalogue. The Lustre manual also requires synchronized clocks. The caller must count a ttl from the beginning of
// its call of acquire() or renew().
//
// Absent names. An NFS client may believe for 60 s that a name does not exist. Before this engine reports a name as
// absent, it asks the server for the attributes of the parent directory; the client then looks the name up again. With
// NFS version 3 and a server whose timestamps are coarse, a client cannot see a second change within one tick (up to
// 10 ms): a key may appear in the catalogue only after the next change of its directory, and a lease may be renewed in
// the same tick in which another machine takes it over. Version 4 has no such gap.
//
// The timeout bounds only the retries, the length of a catalogue page, and wait() as far as the file system answers. A
// process cannot limit how long a file system takes: with the NFS mount option "hard", which is the default, calls
// block while the server does not answer.
//
// Errors: kFull for ENOSPC, EDQUOT and EMLINK (nothing is left behind except empty directories); kRefused for EACCES,
// EPERM, EROFS, EXDEV, ELOOP, ENOTDIR, ENAMETOOLONG, EOPNOTSUPP, EFBIG, a damaged file, a name collision, and invalid
// keys or owners; kUnavailable for all others. If put_if_absent() throws kUnavailable, it may have stored the object.
//
// Not thread-safe; each thread uses a separate FileTier. Opens the directory anew at each call and keeps no descriptor,
// so that the file system can be unmounted. Memory: get() uses up to three times the size of the object while it reads,
// put_if_absent() nothing in addition to the caller's copy, keys_since() the names in one shard.
class FileTier final : public RemoteTier {
 public:
  // By how much a catalogue page overlaps the previous ones. It must exceed the granularity of the file server's
  // timestamps (Lustre: 1 s) and the difference between the clocks that set them.
  static constexpr std::chrono::milliseconds kSlack{10'000};

  // Does not access the directory. Tests set `slack`.
  FileTier(std::string directory, std::chrono::milliseconds timeout,
           std::chrono::milliseconds slack = kSlack);

  std::optional<std::string> get(const std::string& key, std::size_t most_bytes) override;
  PutOutcome put_if_absent(const std::string& key, std::string_view object) override;
  // If several callers remove the same object at once, all of them may return true.
  bool remove(const std::string& key) override;

  bool has_leases() const override { return true; }
  // An owner that already holds the lease gets it again, with a new fencing number. May also return nothing if the
  // previous owner renews its lease in the same instant in which it expires; then neither has the lease.
  std::optional<std::uint64_t> acquire(const std::string& key, const std::string& owner,
                                       std::chrono::milliseconds ttl) override;
  // Returns false if the lease has expired, even if no other owner has taken it. Before it returns false, it releases
  // all leases of the key that name `owner`.
  bool renew(const std::string& key, const std::string& owner,
             std::chrono::milliseconds ttl) override;
  void release(const std::string& key, const std::string& owner) override;
  // Polls, at first every 10 ms, later every 500 ms. Also returns when the lease expires, and immediately if the key
  // exists or no owner holds its lease.
  void wait(const std::string& key, std::chrono::milliseconds timeout) override;

  // A position of another engine counts as the beginning, and so does one that is later than the server's clock. Lists
  // all of `objects` for the position "", and otherwise only the shards that have changed since. A page may be short,
  // or empty, although it is not the last.
  CataloguePage keys_since(const std::string& position, std::size_t most) override;

 private:
  using Clock = std::chrono::steady_clock;

  template <class Call>
  auto attempt(const std::string& action, Call&& call);
  template <class Call>
  auto attempt_key(const char* verb, const std::string& key, Call&& call);
  void remove_old_files(int tmp);

  const std::string directory_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::milliseconds slack_;
  std::optional<dev_t> device_;                 // of `objects`, when it last existed
  std::optional<Clock::time_point> last_scan_;  // of tmp/
};

}  // namespace cacheshim::remote
