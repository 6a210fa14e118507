// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/kernel/kernel_calls.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

namespace cacheshim {
namespace {

constexpr std::uint32_t kReadBytes = 32 * 1024;

Status status_of(const FuseReply& reply) {
  return reply.error == 0 ? Status() : Errno(reply.error);
}

std::vector<std::string> names_in(const std::string& listing) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at + sizeof(fuse_dirent) <= listing.size();) {
    fuse_dirent entry{};
    std::memcpy(&entry, listing.data() + at, sizeof entry);
    const std::string name = listing.substr(at + FUSE_NAME_OFFSET, entry.namelen);
    if (name != "." && name != "..") names.push_back(name);
    at += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + entry.namelen);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Result<std::uint64_t> KernelCalls::lookup(std::uint64_t parent, const std::string& name) const {
  const FuseReply reply = kernel_.call(FUSE_LOOKUP, parent, name_bytes(name));
  if (reply.error != 0) return Errno(reply.error);
  const auto node = reply.as<fuse_entry_out>().nodeid;
  return node == 0 ? Result<std::uint64_t>(Errno(ENOENT)) : node;
}

void KernelCalls::forget(std::uint64_t node, std::uint64_t lookups) const {
  kernel_.send(FUSE_FORGET, node, bytes_of(fuse_forget_in{lookups}));
}

Result<fuse_attr> KernelCalls::getattr(std::uint64_t node) const {
  const FuseReply reply = kernel_.call(FUSE_GETATTR, node, bytes_of(fuse_getattr_in{}));
  if (reply.error != 0) return Errno(reply.error);
  return reply.as<fuse_attr_out>().attr;
}

Result<std::uint64_t> KernelCalls::mkdir(std::uint64_t parent, const std::string& name) const {
  const fuse_mkdir_in body{.mode = 0755, .umask = 022};
  const FuseReply reply = kernel_.call(FUSE_MKDIR, parent, bytes_of(body) + name_bytes(name));
  if (reply.error != 0) return Errno(reply.error);
  return reply.as<fuse_entry_out>().nodeid;
}

Result<OpenNode> KernelCalls::create(std::uint64_t parent, const std::string& name,
                                     int flags) const {
  fuse_create_in body{};
  body.flags = static_cast<std::uint32_t>(flags | O_CREAT);
  body.mode = S_IFREG | 0644;
  body.umask = 022;
  const FuseReply reply = kernel_.call(FUSE_CREATE, parent, bytes_of(body) + name_bytes(name));
  if (reply.error != 0) return Errno(reply.error);
  return OpenNode{reply.as<fuse_entry_out>().nodeid,
                  reply.as<fuse_open_out>(sizeof(fuse_entry_out)).fh};
}

Result<OpenNode> KernelCalls::open(std::uint64_t node, int flags) const {
  fuse_open_in body{};
  body.flags = static_cast<std::uint32_t>(flags);
  const FuseReply reply = kernel_.call(FUSE_OPEN, node, bytes_of(body));
  if (reply.error != 0) return Errno(reply.error);
  const auto opened = reply.as<fuse_open_out>();
  return OpenNode{node, opened.fh, opened.open_flags};
}

Result<std::string> KernelCalls::read(const OpenNode& file, std::uint32_t size) const {
  fuse_read_in body{};
  body.fh = file.fh;
  body.size = size;
  const FuseReply reply = kernel_.call(FUSE_READ, file.node, bytes_of(body));
  if (reply.error != 0) return Errno(reply.error);
  return reply.body;
}

Result<std::size_t> KernelCalls::write(const OpenNode& file, std::string_view data) const {
  fuse_write_in body{};
  body.fh = file.fh;
  body.size = static_cast<std::uint32_t>(data.size());
  const FuseReply reply = kernel_.call(FUSE_WRITE, file.node, bytes_of(body).append(data));
  if (reply.error != 0) return Errno(reply.error);
  return reply.as<fuse_write_out>().size;
}

Status KernelCalls::release(const OpenNode& file) const {
  fuse_release_in body{};
  body.fh = file.fh;
  return status_of(kernel_.call(FUSE_RELEASE, file.node, bytes_of(body)));
}

Status KernelCalls::rename(std::uint64_t parent, const std::string& name, std::uint64_t new_parent,
                           const std::string& new_name) const {
  return status_of(
      kernel_.call(FUSE_RENAME, parent,
                   bytes_of(fuse_rename_in{new_parent}) + name_bytes(name) + name_bytes(new_name)));
}

Status KernelCalls::unlink(std::uint64_t parent, const std::string& name) const {
  return status_of(kernel_.call(FUSE_UNLINK, parent, name_bytes(name)));
}

Result<std::vector<std::string>> KernelCalls::list(std::uint64_t directory) const {
  const FuseReply opened = kernel_.call(FUSE_OPENDIR, directory, bytes_of(fuse_open_in{}));
  if (opened.error != 0) return Errno(opened.error);
  fuse_read_in body{};
  body.fh = opened.as<fuse_open_out>().fh;
  body.size = kReadBytes;
  const FuseReply listed = kernel_.call(FUSE_READDIR, directory, bytes_of(body));
  fuse_release_in release{};
  release.fh = body.fh;
  CACHESHIM_CHECK(status_of(kernel_.call(FUSE_RELEASEDIR, directory, bytes_of(release))));
  if (listed.error != 0) return Errno(listed.error);
  return names_in(listed.body);
}

Status KernelCalls::put(std::uint64_t parent, const std::string& name,
                        std::string_view text) const {
  CACHESHIM_TRY(file, create(parent, name, O_WRONLY));
  CACHESHIM_TRY(written, write(file, text));
  CACHESHIM_CHECK(release(file));
  return written == text.size() ? Status() : Errno(EIO);
}

Result<std::string> KernelCalls::get(std::uint64_t parent, const std::string& name) const {
  CACHESHIM_TRY(node, lookup(parent, name));
  CACHESHIM_TRY(file, open(node, O_RDONLY));
  CACHESHIM_TRY(text, read(file, kReadBytes));
  CACHESHIM_CHECK(release(file));
  return text;
}

}  // namespace cacheshim
