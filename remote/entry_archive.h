// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zstd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/result.h"

// The archive of an object: one zstd frame with the contents of its files.
namespace cacheshim::remote {

inline constexpr std::size_t kBufferBytes = std::size_t{128} * 1024;  // the largest block of zstd

// Makes an archive in memory. Equal parts in the same order give equal archives with the same version of libzstd. Not
// thread-safe. The constructor throws std::bad_alloc. Errors: ENOMEM.
class Compressor {
 public:
  // `content_bytes`: how many bytes will be added.
  explicit Compressor(std::uint64_t content_bytes);
  Status add(std::string_view bytes) { return compress(bytes, ZSTD_e_continue); }
  Status finish() { return compress({}, ZSTD_e_end); }
  std::string take() { return std::move(archive_); }

 private:
  struct Free {
    void operator()(ZSTD_CCtx* context) const { (void)::ZSTD_freeCCtx(context); }
  };

  Status compress(std::string_view bytes, ZSTD_EndDirective directive);

  std::unique_ptr<ZSTD_CCtx, Free> context_;
  std::string out_;
  std::string archive_;
};

// Decompresses an archive, which may be malformed. Refuses an archive whose window is larger than 2 MiB, to bound the
// memory. Not thread-safe. The constructor throws std::bad_alloc.
class Decompressor {
 public:
  // `archive` must stay valid.
  explicit Decompressor(std::string_view archive);
  // Fills `buffer` with the next bytes of the content. Errors: EBADMSG if the archive is malformed, or ends before the
  // buffer is full.
  Status read(std::span<char> buffer);
  // Returns true if all content has been read and no bytes follow the frame. Reads on, so call it last.
  bool is_at_end();

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { (void)::ZSTD_freeDCtx(context); }
  };

  Status step(ZSTD_outBuffer& out);

  std::unique_ptr<ZSTD_DCtx, Free> context_;
  ZSTD_inBuffer in_;
  bool is_ended_ = false;
};

}  // namespace cacheshim::remote
