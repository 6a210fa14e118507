// SPDX-License-Identifier: Apache-2.0
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <string_view>

#include "common/result.h"
#include "fuse/vfs/request.h"

// Replies to requests of the kernel. A reply that the kernel does not take, because the caller was killed, gives back
// what it would have held. Call with no lock held.
namespace cacheshim::replies {

void status(fuse_req_t req, const Status& result);
void entry(fuse_req_t req, const Result<Entry>& result);
void attributes(fuse_req_t req, const Result<Attributes>& result);
void opened(fuse_req_t req, const Result<OpenedFile>& result);
void opened_directory(fuse_req_t req, const OpenedFile& result);
void created(fuse_req_t req, const Result<CreatedFile>& result);
void written(fuse_req_t req, const Result<std::size_t>& bytes);
// The two forms of an xattr request: its length (`size` 0), and the value itself.
void xattr(fuse_req_t req, const Result<std::string>& value, std::size_t size);
void text(fuse_req_t req, const Result<std::string_view>& result);
// `size` bytes of a file at `offset`.
void data(fuse_req_t req, int fd, std::size_t size, off_t offset);

StatusCompletion status_of(fuse_req_t req);
EntryCompletion entry_of(fuse_req_t req);
AttributesCompletion attributes_of(fuse_req_t req);
OpenCompletion opened_of(fuse_req_t req);
Completion<Result<std::string_view>> text_of(fuse_req_t req);

}  // namespace cacheshim::replies
