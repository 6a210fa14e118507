// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <cstring>

#include "shim/routing/routed_call.h"

// Hooks of dlopen and dlmopen, for libraries in a route.
//
// Problem: libc uses the return address to identify the caller. For a plain name, libc searches the caller's RPATH or
// RUNPATH; for $ORIGIN, it uses the caller's directory; and dlopen loads into the caller's namespace. If a wrapper
// called libc, libc would use the RPATH, directory and namespace of this library. Solution: a few instructions call a
// function that checks the path, and then jump to libc, with all arguments and the caller's return address in place.
// For a routed path, which is absolute and contains no $ORIGIN, an ordinary function calls libc. One difference
// remains: if the routed library has no RUNPATH, glibc also searches the caller's RPATH for the dependencies of the
// routed library, and the caller is then this library.

namespace {

using cacheshim::PathBuffer;
namespace real = cacheshim::real;
namespace runtime = cacheshim::runtime;

bool is_routed(const char* path) {
  if (!runtime::may_match(path) || std::strchr(path, '/') == nullptr) return false;
  const cacheshim::ErrnoGuard errno_guard;
  PathBuffer buffer;
  return runtime::route({AT_FDCWD, path}, buffer).path != path;
}

const char* route_library(const char* path, PathBuffer& buffer) {
  const cacheshim::ErrnoGuard errno_guard;
  return cacheshim::route_checked({AT_FDCWD, path}, cacheshim::CallKind::kLookup, buffer).path;
}

void* open_routed(const char* path, int mode) noexcept {
  PathBuffer buffer;
  return real::dlopen(route_library(path, buffer), mode);
}

void* open_routed_in(Lmid_t space, const char* path, int mode) noexcept {
  PathBuffer buffer;
  return real::dlmopen(space, route_library(path, buffer), mode);
}

void* open_nowhere(const char*, int) noexcept { return nullptr; }
void* open_nowhere_in(Lmid_t, const char*, int) noexcept { return nullptr; }

}  // namespace

extern "C" {

// Returns the function to which the code below jumps.
[[gnu::visibility("hidden"), gnu::used]] decltype(&::dlopen) cacheshim_choose_dlopen(
    const char* path) {
  if (is_routed(path)) return open_routed;
  const auto function = real::dlopen.get();
  return function != nullptr ? function : open_nowhere;
}

[[gnu::visibility("hidden"), gnu::used]] decltype(&::dlmopen) cacheshim_choose_dlmopen(
    const char* path) {
  if (is_routed(path)) return open_routed_in;
  const auto function = real::dlmopen.get();
  return function != nullptr ? function : open_nowhere_in;
}

}  // extern "C"

#if defined(__x86_64__)
// dlopen(rdi path, esi mode)
__asm__(R"(
  .text
  .globl dlopen
  .type dlopen, @function
dlopen:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call cacheshim_choose_dlopen
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  jmpq *%rax
  .cfi_endproc
  .size dlopen, . - dlopen
)");
// dlmopen(rdi namespace, rsi path, edx mode)
__asm__(R"(
  .text
  .globl dlmopen
  .type dlmopen, @function
dlmopen:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  pushq %rdx
  .cfi_adjust_cfa_offset 8
  movq %rsi, %rdi
  call cacheshim_choose_dlmopen
  popq %rdx
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  jmpq *%rax
  .cfi_endproc
  .size dlmopen, . - dlmopen
)");
#elif defined(__aarch64__)
// dlopen(x0 path, w1 mode)
__asm__(R"(
  .text
  .globl dlopen
  .type dlopen, %function
dlopen:
  .cfi_startproc
  hint #34
  stp x29, x30, [sp, #-32]!
  .cfi_def_cfa_offset 32
  .cfi_offset 29, -32
  .cfi_offset 30, -24
  mov x29, sp
  stp x0, x1, [sp, #16]
  bl cacheshim_choose_dlopen
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_def_cfa_offset 0
  .cfi_restore 29
  .cfi_restore 30
  br x16
  .cfi_endproc
  .size dlopen, . - dlopen
)");
// dlmopen(x0 namespace, x1 path, w2 mode)
__asm__(R"(
  .text
  .globl dlmopen
  .type dlmopen, %function
dlmopen:
  .cfi_startproc
  hint #34
  stp x29, x30, [sp, #-48]!
  .cfi_def_cfa_offset 48
  .cfi_offset 29, -48
  .cfi_offset 30, -40
  mov x29, sp
  stp x0, x1, [sp, #16]
  str x2, [sp, #32]
  mov x0, x1
  bl cacheshim_choose_dlmopen
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldr x2, [sp, #32]
  ldp x29, x30, [sp], #48
  .cfi_def_cfa_offset 0
  .cfi_restore 29
  .cfi_restore 30
  br x16
  .cfi_endproc
  .size dlmopen, . - dlmopen
)");
#else
#error "dlopen's calling convention on this architecture?"
#endif
