// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/file_tier_objects.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "remote/engines/file_tier_layout.h"
#include "store/sys/sys.h"

namespace cacheshim::remote::file_tier {
namespace {

constexpr std::chrono::seconds kSlowLink{2};

std::string object_header(const std::string& key, std::uint64_t size) {
  return fmt::format("{}{:016x}\n{}\n", kObjectMark, size, key);
}

}  // namespace

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
  // Where clients set times, this client has read its clock before it sent the request, so the ctime may be too old
  // (file_tier_catalogue.cc).
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

}  // namespace cacheshim::remote::file_tier
