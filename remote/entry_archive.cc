// SPDX-License-Identifier: Apache-2.0
#include "remote/entry_archive.h"

#include <cerrno>
#include <new>

namespace cacheshim::remote {
namespace {

constexpr int kLevel = 3;       // zstd's default level; explicit, because the default may change
constexpr int kWindowLog = 21;  // the writer's window is 2 MiB; a reader needs as much memory

}  // namespace

Compressor::Compressor(std::uint64_t content_bytes)
    : context_(::ZSTD_createCCtx()), out_(kBufferBytes, '\0') {
  if (!context_) throw std::bad_alloc();
  // These functions fail only for values out of range.
  (void)::ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kLevel);
  (void)::ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_windowLog, kWindowLog);
  (void)::ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 0);
  (void)::ZSTD_CCtx_setPledgedSrcSize(context_.get(), content_bytes);
}

Status Compressor::compress(std::string_view bytes, ZSTD_EndDirective directive) {
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  for (;;) {
    ZSTD_outBuffer out{out_.data(), out_.size(), 0};
    const std::size_t left = ::ZSTD_compressStream2(context_.get(), &out, &in, directive);
    if (::ZSTD_isError(left) != 0) return Errno(ENOMEM);
    archive_.append(out_.data(), out.pos);
    if (directive == ZSTD_e_end ? left == 0 : in.pos == in.size) return {};
  }
}

Decompressor::Decompressor(std::string_view archive)
    : context_(::ZSTD_createDCtx()), in_{archive.data(), archive.size(), 0} {
  if (!context_) throw std::bad_alloc();
  (void)::ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kWindowLog);
}

Status Decompressor::read(std::span<char> buffer) {
  ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
  while (out.pos < out.size) CACHESHIM_CHECK(step(out));
  return {};
}

bool Decompressor::is_at_end() {
  char more = 0;
  ZSTD_outBuffer out{&more, 1, 0};
  while (!is_ended_ && out.pos == 0) {
    if (!step(out)) return false;
  }
  return out.pos == 0 && in_.pos == in_.size;
}

Status Decompressor::step(ZSTD_outBuffer& out) {
  if (is_ended_) return Errno(EBADMSG);
  const std::size_t read = in_.pos;
  const std::size_t written = out.pos;
  const std::size_t left = ::ZSTD_decompressStream(context_.get(), &out, &in_);
  if (::ZSTD_isError(left) != 0) return Errno(EBADMSG);
  is_ended_ = left == 0;
  const bool has_moved = in_.pos > read || out.pos > written || is_ended_;
  return has_moved ? Status() : Errno(EBADMSG);  // no progress: the archive is cut off
}

}  // namespace cacheshim::remote
