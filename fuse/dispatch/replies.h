// SPDX-License-Identifier: Apache-2.0
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <string_view>

#include "common/result.h"
#include "fuse/vfs/request.h"

// Replies to the kernel's requests. If the kernel does not accept a reply because the caller was killed, these
// functions release the handle that the reply contains, and subtract the reply's lookup from the node's lookup count.
// Call with no lock held.
namespace cacheshim::replies {

void status(fuse_req_t req, const Status& result);
void entry(fuse_req_t req, const Result<Entry>& result);
void attributes(fuse_req_t req, const Result<Attributes>& result);
void opened(fuse_req_t req, const Result<OpenedFile>& result);
void opened_directory(fuse_req_t req, const Result<OpenedFile>& result);
void created(fuse_req_t req, const Result<CreatedFile>& result);
void written(fuse_req_t req, const Result<std::size_t>& bytes);
// Replies to an xattr request: with the length of the value if `size` is 0, otherwise with the value, or with ERANGE if
// the value is longer than `size`.
void xattr(fuse_req_t req, const Result<std::string>& value, std::size_t size);
void text(fuse_req_t req, const Result<std::string_view>& result);
// Replies with up to `size` bytes of a file, starting at `offset`.
void data(fuse_req_t req, int fd, std::size_t size, off_t offset);

StatusCompletion status_of(fuse_req_t req);
EntryCompletion entry_of(fuse_req_t req);
AttributesCompletion attributes_of(fuse_req_t req);
OpenCompletion opened_of(fuse_req_t req);
Completion<Result<std::string_view>> text_of(fuse_req_t req);

}  // namespace cacheshim::replies
