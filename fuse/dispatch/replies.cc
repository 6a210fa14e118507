// SPDX-License-Identifier: Apache-2.0
#include "fuse/dispatch/replies.h"

#include <unistd.h>

#include <cerrno>
#include <vector>

#include "fuse/transport/wire.h"
#include "fuse/vfs/filesystem.h"

namespace cacheshim::replies {
namespace {

// From this size on, data go from the file to the device by splice(2). For fewer bytes, the two additional system calls
// of splice take longer than a copy.
constexpr std::size_t kSpliceFrom = std::size_t{64} * 1024;

Filesystem& filesystem_of(fuse_req_t req) {
  return *static_cast<Filesystem*>(fuse_req_userdata(req));
}

template <class T>
bool fails(fuse_req_t req, const Result<T>& result) {
  if (!result) (void)fuse_reply_err(req, result.error().code());
  return !result;
}

fuse_entry_param param_of(const Entry& entry) {
  fuse_entry_param param{};
  param.ino = entry.ino;
  param.attr = entry.attr;
  param.attr_timeout = entry.attr_timeout;
  param.entry_timeout = entry.entry_timeout;
  return param;
}

fuse_file_info info_of(const OpenedFile& file) {
  fuse_file_info info{};
  info.fh = file.fh;
  info.direct_io = file.direct_io;
  info.keep_cache = file.keep_cache;
  info.cache_readdir = file.cache_readdir;
  info.noflush = file.noflush;
  wire::pass_through(file.backing_id);
  return info;
}

void interrupted(fuse_req_t, void* waiter) { static_cast<Interruptible*>(waiter)->interrupt(); }

// libfuse 3.14 calls a request's interrupt function with the request's lock held. fuse_req_interrupt_func() takes that
// lock, so it waits for a call in progress; a reply does not. So the interrupt function must be removed before the
// reply: otherwise, libfuse may call it after the waiter has been destroyed.
void watch(void* request, Interruptible* waiter) {
  fuse_req_interrupt_func(static_cast<fuse_req_t>(request),
                          waiter == nullptr ? nullptr : interrupted, waiter);
}

template <class R, void (*reply)(fuse_req_t, const R&)>
Completion<R> completion_of(fuse_req_t req) {
  static constexpr typename Completion<R>::Replier kReplier{
      [](void* request, const R& result) { reply(static_cast<fuse_req_t>(request), result); },
      watch};
  return {req, kReplier};
}

}  // namespace

void status(fuse_req_t req, const Status& result) {
  (void)fuse_reply_err(req, result ? 0 : result.error().code());
}

void entry(fuse_req_t req, const Result<Entry>& result) {
  if (fails(req, result)) return;
  const fuse_entry_param param = param_of(*result);
  if (fuse_reply_entry(req, &param) == -ENOENT && param.ino != 0) {
    filesystem_of(req).names.drop_entry(param.ino);
  }
}

void attributes(fuse_req_t req, const Result<Attributes>& result) {
  if (!fails(req, result)) (void)fuse_reply_attr(req, &result->st, result->timeout);
}

void opened(fuse_req_t req, const Result<OpenedFile>& result) {
  if (fails(req, result)) return;
  Filesystem& filesystem = filesystem_of(req);
  const fuse_file_info info = info_of(*result);
  if (fuse_reply_open(req, &info) == -ENOENT) filesystem.files.release(result->fh);
}

void opened_directory(fuse_req_t req, const Result<OpenedFile>& result) {
  if (fails(req, result)) return;
  Filesystem& filesystem = filesystem_of(req);
  const fuse_file_info info = info_of(*result);
  if (fuse_reply_open(req, &info) == -ENOENT) filesystem.directories.releasedir(result->fh);
}

void created(fuse_req_t req, const Result<CreatedFile>& result) {
  if (fails(req, result)) return;
  Filesystem& filesystem = filesystem_of(req);
  const fuse_entry_param param = param_of(result->entry);
  const fuse_file_info info = info_of(result->file);
  if (fuse_reply_create(req, &param, &info) != -ENOENT) return;
  filesystem.files.release(result->file.fh);
  filesystem.names.drop_entry(param.ino);
}

void written(fuse_req_t req, const Result<std::size_t>& bytes) {
  if (!fails(req, bytes)) (void)fuse_reply_write(req, *bytes);
}

void xattr(fuse_req_t req, const Result<std::string>& value, std::size_t size) {
  if (fails(req, value)) return;
  if (size == 0) {
    (void)fuse_reply_xattr(req, value->size());
  } else if (value->size() > size) {
    (void)fuse_reply_err(req, ERANGE);
  } else {
    (void)fuse_reply_buf(req, value->data(), value->size());
  }
}

void text(fuse_req_t req, const Result<std::string_view>& result) {
  if (!fails(req, result)) (void)fuse_reply_buf(req, result->data(), result->size());
}

void data(fuse_req_t req, int fd, std::size_t size, off_t offset) {
  char* bytes = wire::reply_space(size);
  if (bytes == nullptr && size >= kSpliceFrom) {
    fuse_bufvec file{};
    file.count = 1;
    file.buf[0].size = size;
    file.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
    file.buf[0].fd = fd;
    file.buf[0].pos = offset;
    // FUSE_BUF_SPLICE_MOVE would remove the pages from the page cache of the backing file.
    return (void)fuse_reply_data(req, &file, fuse_buf_copy_flags{});
  }
  thread_local std::vector<char> buffer;
  if (bytes == nullptr) {
    if (buffer.size() < size) buffer.resize(size);
    bytes = buffer.data();
  }
  const ssize_t count = ::pread(fd, bytes, size, offset);
  if (count == -1) return (void)fuse_reply_err(req, errno);
  (void)fuse_reply_buf(req, bytes, static_cast<std::size_t>(count));
}

StatusCompletion status_of(fuse_req_t req) { return completion_of<Status, status>(req); }
EntryCompletion entry_of(fuse_req_t req) { return completion_of<Result<Entry>, entry>(req); }
AttributesCompletion attributes_of(fuse_req_t req) {
  return completion_of<Result<Attributes>, attributes>(req);
}
OpenCompletion opened_of(fuse_req_t req) { return completion_of<Result<OpenedFile>, opened>(req); }
Completion<Result<std::string_view>> text_of(fuse_req_t req) {
  return completion_of<Result<std::string_view>, text>(req);
}

}  // namespace cacheshim::replies
