// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace cacheshim::parity {
namespace {

std::string errno_name() {
  const char* name = ::strerrorname_np(errno);
  return name != nullptr ? name : std::to_string(errno);
}

// Returns an error unless `value` is the expected one. A value of -1 is reported by the name of its
// errno.
Wrong returned(const std::string& what, long long value, std::size_t expected) {
  if (value == static_cast<long long>(expected)) return {};
  return what + " is " + (value == -1 ? errno_name() : std::to_string(value)) + ", not " +
         std::to_string(expected);
}

Wrong same_bytes(const std::string& what, std::string_view found, std::string_view expected,
                 std::size_t offset) {
  if (found == expected) return {};
  if (found.size() != expected.size()) {
    return what + " has " + std::to_string(found.size()) + " bytes, not " +
           std::to_string(expected.size());
  }
  const auto at = std::mismatch(found.begin(), found.end(), expected.begin()).first;
  const auto index = static_cast<std::size_t>(at - found.begin());
  const auto byte = [&](std::string_view bytes) {
    return std::to_string(static_cast<unsigned char>(bytes[index]));
  };
  return what + " at " + std::to_string(offset + index) + " holds " + byte(found) + ", not " +
         byte(expected);
}

std::string_view part(const std::string& bytes, std::size_t at, std::size_t length) {
  return at < bytes.size() ? std::string_view(bytes).substr(at, length) : std::string_view();
}

std::size_t limited(std::size_t at, std::size_t length) {
  return at < kMostBytes ? std::min(length, kMostBytes - at) : 0;
}

bool all_zero(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

off_t offset(std::size_t at) { return static_cast<off_t>(at); }

}  // namespace

Supported what_is_supported(const std::string& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
  const auto works = [&](int mode) {
    return ::fallocate(fd.get(), mode | FALLOC_FL_KEEP_SIZE, 0, kBlock) == 0;
  };
  return {works(FALLOC_FL_PUNCH_HOLE), works(FALLOC_FL_ZERO_RANGE)};
}

DataFiles::DataFiles(std::string directory, std::array<std::string, kFiles> contents,
                     Supported supported)
    : directory_(std::move(directory)), contents_(std::move(contents)), supported_(supported) {}

Wrong DataFiles::carry_out(const DataStep& step) {
  static constexpr Wrong (DataFiles::*kDo[])(const Numbers&) = {
      &DataFiles::open,     &DataFiles::close,     &DataFiles::read,      &DataFiles::pread,
      &DataFiles::write,    &DataFiles::pwrite,    &DataFiles::seek,      &DataFiles::set_flags,
      &DataFiles::truncate, &DataFiles::ftruncate, &DataFiles::map,       &DataFiles::unmap,
      &DataFiles::load,     &DataFiles::store,     &DataFiles::msync,     &DataFiles::fsync,
      &DataFiles::punch,    &DataFiles::zero,      &DataFiles::reserve,   &DataFiles::collapse,
      &DataFiles::insert,   &DataFiles::copy,      &DataFiles::seek_data, &DataFiles::seek_hole,
      &DataFiles::check};
  return (this->*kDo[static_cast<std::size_t>(step.call)])(step.numbers);
}

DataFiles::Slot* DataFiles::readable(std::size_t slot) {
  return slots_[slot].fd && slots_[slot].reads ? &slots_[slot] : nullptr;
}

DataFiles::Slot* DataFiles::writable(std::size_t slot) {
  return slots_[slot].fd && slots_[slot].writes ? &slots_[slot] : nullptr;
}

void DataFiles::put(std::size_t file, std::size_t at, const std::string& bytes) {
  std::string& all = contents_[file];
  if (all.size() < at + bytes.size()) all.resize(at + bytes.size(), '\0');
  all.replace(at, bytes.size(), bytes);
}

Wrong DataFiles::open(const Numbers& n) {
  static constexpr int kFlags[kOpenModes] = {O_RDONLY,          O_RDWR,   O_WRONLY | O_APPEND,
                                             O_RDWR | O_APPEND, O_WRONLY, O_RDWR | O_TRUNC};
  const std::size_t mode = n[2] % kOpenModes;
  Slot& slot = slots_[n[0]];
  slot.fd = UniqueFd();
  slot.fd = UniqueFd(::open(path(n[1]).c_str(), kFlags[mode] | O_CLOEXEC));
  if (!slot.fd) return "open gives " + errno_name();
  const int access = kFlags[mode] & O_ACCMODE;
  slot.file = n[1];
  slot.at = 0;
  slot.reads = access != O_WRONLY;
  slot.writes = access != O_RDONLY;
  slot.appends = (kFlags[mode] & O_APPEND) != 0;
  if (mode == kTruncating) contents_[n[1]].clear();
  return {};
}

Wrong DataFiles::close(const Numbers& n) {
  if (!slots_[n[0]].fd) return {};
  return returned("close", ::close(slots_[n[0]].fd.release()), 0);
}

Wrong DataFiles::read(const Numbers& n) {
  Slot* slot = readable(n[0]);
  if (slot == nullptr) return {};
  std::string bytes(n[1], '?');
  const auto expected = part(contents_[slot->file], slot->at, n[1]);
  const ssize_t count = ::read(slot->fd.get(), bytes.data(), bytes.size());
  if (Wrong wrong = returned("read", count, expected.size())) return wrong;
  bytes.resize(expected.size());
  const Wrong wrong = same_bytes("read", bytes, expected, slot->at);
  slot->at += expected.size();
  return wrong;
}

Wrong DataFiles::pread(const Numbers& n) {
  Slot* slot = readable(n[0]);
  if (slot == nullptr) return {};
  std::string bytes(n[2], '?');
  const auto expected = part(contents_[slot->file], n[1], n[2]);
  const ssize_t count = ::pread(slot->fd.get(), bytes.data(), bytes.size(), offset(n[1]));
  if (Wrong wrong = returned("pread", count, expected.size())) return wrong;
  bytes.resize(expected.size());
  return same_bytes("pread", bytes, expected, n[1]);
}

Wrong DataFiles::write(const Numbers& n) {
  Slot* slot = writable(n[0]);
  if (slot == nullptr) return {};
  const std::size_t at = slot->appends ? contents_[slot->file].size() : slot->at;
  const std::string bytes = filled(n[2], limited(at, n[1]));
  if (bytes.empty()) return {};
  const ssize_t count = ::write(slot->fd.get(), bytes.data(), bytes.size());
  put(slot->file, at, bytes);
  slot->at = at + bytes.size();
  return returned("write", count, bytes.size());
}

// With O_APPEND, pwrite on Linux ignores the offset and appends.
Wrong DataFiles::pwrite(const Numbers& n) {
  Slot* slot = writable(n[0]);
  if (slot == nullptr) return {};
  const std::size_t at = slot->appends ? contents_[slot->file].size() : n[1];
  const std::string bytes = filled(n[3], limited(at, n[2]));
  if (bytes.empty()) return {};
  const ssize_t count = ::pwrite(slot->fd.get(), bytes.data(), bytes.size(), offset(n[1]));
  put(slot->file, at, bytes);
  return returned("pwrite", count, bytes.size());
}

Wrong DataFiles::seek(const Numbers& n) {
  Slot& slot = slots_[n[0]];
  if (!slot.fd) return {};
  slot.at = n[1];
  return returned("lseek", ::lseek(slot.fd.get(), offset(n[1]), SEEK_SET), n[1]);
}

Wrong DataFiles::set_flags(const Numbers& n) {
  Slot& slot = slots_[n[0]];
  if (!slot.fd) return {};
  const auto flag = [&](StatusFlag one, int value) { return (n[1] & one) != 0 ? value : 0; };
  slot.appends = (n[1] & kSetsAppend) != 0;
  const int flags =
      flag(kSetsAppend, O_APPEND) | flag(kSetsNonblock, O_NONBLOCK) | flag(kSetsNoatime, O_NOATIME);
  return returned("fcntl(F_SETFL)", ::fcntl(slot.fd.get(), F_SETFL, flags), 0);
}

Wrong DataFiles::truncate(const Numbers& n) {
  contents_[n[0]].resize(n[1], '\0');
  return returned("truncate", ::truncate(path(n[0]).c_str(), offset(n[1])), 0);
}

Wrong DataFiles::ftruncate(const Numbers& n) {
  Slot* slot = writable(n[0]);
  if (slot == nullptr) return {};
  contents_[slot->file].resize(n[1], '\0');
  return returned("ftruncate", ::ftruncate(slot->fd.get(), offset(n[1])), 0);
}

Wrong DataFiles::map(const Numbers& n) {
  Slot* slot = readable(n[1]);
  if (slot == nullptr || contents_[slot->file].empty()) return {};
  Mapped& mapped = mapped_[n[0]];
  mapped.file = slot->file;
  mapped.mapping = Mapping(slot->fd.get(), contents_[slot->file].size(), slot->writes);
  return mapped.mapping ? Wrong() : "mmap gives " + errno_name();
}

Wrong DataFiles::unmap(const Numbers& n) {
  mapped_[n[0]].mapping.reset();
  return {};
}

std::size_t DataFiles::within(const Mapped& mapped, std::size_t at, std::size_t length) const {
  if (!mapped.mapping) return 0;
  const std::size_t end = std::min(mapped.mapping.length(), contents_[mapped.file].size());
  return at < end ? std::min(length, end - at) : 0;
}

Wrong DataFiles::load(const Numbers& n) {
  const Mapped& mapped = mapped_[n[0]];
  std::string bytes(within(mapped, n[1], n[2]), '?');
  if (bytes.empty()) return {};
  if (Wrong wrong = returned("a load", mapped.mapping.load(n[1], bytes), bytes.size()))
    return wrong;
  return same_bytes("the mapping", bytes, part(contents_[mapped.file], n[1], bytes.size()), n[1]);
}

Wrong DataFiles::store(const Numbers& n) {
  const Mapped& mapped = mapped_[n[0]];
  const std::string bytes = filled(n[3], within(mapped, n[1], n[2]));
  if (bytes.empty() || !mapped.mapping.writable()) return {};
  put(mapped.file, n[1], bytes);
  return returned("a store", mapped.mapping.store(n[1], bytes), bytes.size());
}

Wrong DataFiles::msync(const Numbers& n) {
  const Mapped& mapped = mapped_[n[0]];
  return mapped.mapping ? returned("msync", mapped.mapping.sync(), 0) : Wrong();
}

Wrong DataFiles::fsync(const Numbers& n) {
  return slots_[n[0]].fd ? returned("fsync", ::fsync(slots_[n[0]].fd.get()), 0) : Wrong();
}

Wrong DataFiles::punch(const Numbers& n) {
  Slot* slot = writable(n[0]);
  const std::size_t length = limited(n[1], n[2]);
  if (slot == nullptr || length == 0 || !supported_.punch) return {};
  std::string& bytes = contents_[slot->file];
  if (n[1] < bytes.size())
    put(slot->file, n[1], std::string(std::min(length, bytes.size() - n[1]), '\0'));
  return returned("punching a hole",
                  ::fallocate(slot->fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              offset(n[1]), offset(length)),
                  0);
}

Wrong DataFiles::zero(const Numbers& n) {
  Slot* slot = writable(n[0]);
  std::size_t length = limited(n[1], n[2]);
  if (slot == nullptr || length == 0 || !supported_.zero) return {};
  const int keep = n[3] != 0 ? FALLOC_FL_KEEP_SIZE : 0;
  const int result =
      ::fallocate(slot->fd.get(), FALLOC_FL_ZERO_RANGE | keep, offset(n[1]), offset(length));
  const std::size_t size = contents_[slot->file].size();
  if (keep != 0) length = n[1] < size ? std::min(length, size - n[1]) : 0;
  if (length > 0) put(slot->file, n[1], std::string(length, '\0'));
  return returned("zeroing", result, 0);
}

Wrong DataFiles::reserve(const Numbers& n) {
  Slot* slot = writable(n[0]);
  const std::size_t length = limited(n[1], n[2]);
  if (slot == nullptr || length == 0) return {};
  const int keep = n[3] != 0 ? FALLOC_FL_KEEP_SIZE : 0;
  std::string& bytes = contents_[slot->file];
  if (keep == 0) bytes.resize(std::max(bytes.size(), n[1] + length), '\0');
  return returned("reserving", ::fallocate(slot->fd.get(), keep, offset(n[1]), offset(length)), 0);
}

// The kernel's FUSE supports neither collapse nor insert. A file system may refuse both with
// EOPNOTSUPP, but must then change nothing.
Wrong DataFiles::collapse(const Numbers& n) {
  Slot* slot = writable(n[0]);
  if (slot == nullptr || n[1] + n[2] >= contents_[slot->file].size()) return {};
  const int result =
      ::fallocate(slot->fd.get(), FALLOC_FL_COLLAPSE_RANGE, offset(n[1]), offset(n[2]));
  if (result != 0 && errno == EOPNOTSUPP) return {};
  contents_[slot->file].erase(n[1], n[2]);
  return returned("collapsing", result, 0);
}

Wrong DataFiles::insert(const Numbers& n) {
  Slot* slot = writable(n[0]);
  if (slot == nullptr || n[1] >= contents_[slot->file].size()) return {};
  if (contents_[slot->file].size() + n[2] > kMostBytes) return {};
  const int result =
      ::fallocate(slot->fd.get(), FALLOC_FL_INSERT_RANGE, offset(n[1]), offset(n[2]));
  if (result != 0 && errno == EOPNOTSUPP) return {};
  contents_[slot->file].insert(n[1], n[2], '\0');
  return returned("inserting", result, 0);
}

Wrong DataFiles::copy(const Numbers& n) {
  Slot* from = readable(n[0]);
  Slot* to = writable(n[2]);
  if (from == nullptr || to == nullptr || to->appends) return {};
  const std::size_t length = limited(n[3], n[4]);
  const bool overlaps = from->file == to->file && n[1] < n[3] + length && n[3] < n[1] + length;
  if (length == 0 || overlaps) return {};
  const std::string bytes(part(contents_[from->file], n[1], length));
  off_t source = offset(n[1]);
  off_t target = offset(n[3]);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        ::copy_file_range(from->fd.get(), &source, to->fd.get(), &target, length - done, 0);
    if (count <= 0) return returned("copy_file_range", count, bytes.size() - done);
    done += static_cast<std::size_t>(count);
  }
  if (!bytes.empty()) put(to->file, n[3], bytes);
  return returned("copy_file_range", static_cast<long long>(done), bytes.size());
}

// Writes back dirty mapped pages. Call this before SEEK_DATA and SEEK_HOLE: local file systems take these pages into
// account, but the kernel's FUSE does not, and the underlying file system does not know of them.
Wrong DataFiles::write_back_mappings(std::size_t file) {
  for (const Mapped& mapped : mapped_) {
    if (!mapped.mapping || mapped.file != file) continue;
    if (Wrong wrong = returned("msync", mapped.mapping.sync(), 0)) return wrong;
  }
  return {};
}

// SEEK_DATA may return a position before the data, but must not skip a nonzero byte.
Wrong DataFiles::seek_data(const Numbers& n) {
  Slot& slot = slots_[n[0]];
  if (!slot.fd) return {};
  if (Wrong wrong = write_back_mappings(slot.file)) return wrong;
  const std::string& bytes = contents_[slot.file];
  const off_t found = ::lseek(slot.fd.get(), offset(n[1]), SEEK_DATA);
  const bool none = found == -1 && errno == ENXIO;
  if (found == -1 && !none) return "SEEK_DATA gives " + errno_name();
  const std::size_t at = none ? bytes.size() : static_cast<std::size_t>(found);
  if (!none && (at < n[1] || at >= bytes.size())) return "SEEK_DATA leads to " + std::to_string(at);
  if (n[1] < at && !all_zero(part(bytes, n[1], at - n[1]))) {
    return "SEEK_DATA leaves data out before " + std::to_string(at);
  }
  return returned("lseek", ::lseek(slot.fd.get(), offset(slot.at), SEEK_SET), slot.at);
}

// SEEK_HOLE must return the end of the file, or a position from which all bytes up to the next data
// are zero.
Wrong DataFiles::seek_hole(const Numbers& n) {
  Slot& slot = slots_[n[0]];
  if (!slot.fd) return {};
  if (Wrong wrong = write_back_mappings(slot.file)) return wrong;
  const std::string& bytes = contents_[slot.file];
  const off_t found = ::lseek(slot.fd.get(), offset(n[1]), SEEK_HOLE);
  if (n[1] >= bytes.size()) {
    return found == -1 && errno == ENXIO ? Wrong() : "SEEK_HOLE finds one after the end";
  }
  if (found == -1) return "SEEK_HOLE gives " + errno_name();
  const auto hole = static_cast<std::size_t>(found);
  if (hole < n[1] || hole > bytes.size()) return "SEEK_HOLE leads to " + std::to_string(hole);
  const off_t data = ::lseek(slot.fd.get(), found, SEEK_DATA);
  const std::size_t end = data == -1 ? bytes.size() : static_cast<std::size_t>(data);
  if (hole < bytes.size() && (end == hole || !all_zero(part(bytes, hole, end - hole)))) {
    return "the hole at " + std::to_string(hole) + " holds data";
  }
  return returned("lseek", ::lseek(slot.fd.get(), offset(slot.at), SEEK_SET), slot.at);
}

Wrong DataFiles::compare_file(int fd, std::size_t file, const std::string& what) const {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return what + ": fstat gives " + errno_name();
  const std::string& expected = contents_[file];
  if (Wrong wrong = returned(what + ": st_size", st.st_size, expected.size())) return wrong;
  std::string bytes(expected.size() + 1, '?');  // one byte more, to detect a file that is too long
  std::size_t done = 0;
  for (ssize_t count = 1; count > 0; done += static_cast<std::size_t>(count)) {
    count = ::pread(fd, bytes.data() + done, bytes.size() - done, offset(done));
    if (count < 0) return what + ": pread gives " + errno_name();
  }
  bytes.resize(done);
  return same_bytes(what, bytes, expected, 0);
}

Wrong DataFiles::check(const Numbers& n) {
  const UniqueFd fd(::open(path(n[0]).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return "open for reading gives " + errno_name();
  return compare_file(fd.get(), n[0], "file " + name(n[0]) + " opened anew");
}

Wrong DataFiles::check_all() {
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    const Slot* open = readable(slot);
    if (open == nullptr) continue;
    Wrong wrong = compare_file(open->fd.get(), open->file, "slot " + std::to_string(slot));
    if (wrong) return wrong;
  }
  for (std::size_t map = 0; map < kMappings; ++map) {
    if (Wrong wrong = load({map, 0, kMostBytes})) return wrong;
  }
  for (std::size_t file = 0; file < kFiles; ++file) {
    if (Wrong wrong = check({file})) return wrong;
  }
  return {};
}

}  // namespace cacheshim::parity
