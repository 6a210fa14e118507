// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <sys/syscall.h>

#include <atomic>
#include <cstring>

#include "shim/routed_call.h"

// dlopen and dlmopen, for libraries that lie in a route.
//
// Problem: libc looks at the address that it will return to, to know who calls. The caller's RPATH,
// RUNPATH, $ORIGIN and namespace count for what is found, also for what the library in a route needs
// in turn; called by a wrapper, libc would take ours. Idea: a few instructions that have the path
// looked at and then jump, with the caller's return address in its place. Invariant: all other
// arguments are libc's untouched. Cost: a routed path has to outlive the jump, so it stands in static
// memory, in a slot that belongs to the calling thread until that calls again.

namespace {

using cacheshim::PathBuffer;
namespace real = cacheshim::real;
namespace runtime = cacheshim::runtime;

struct Slot {
  std::atomic<pid_t> owner{0};
  PathBuffer path;
};
constinit Slot slots[16];

// glibc has functions for these calls since 2.30 only.
pid_t own_thread() { return static_cast<pid_t>(real::syscall(long{SYS_gettid})); }

bool is_alive(pid_t thread) {
  return real::syscall(long{SYS_tgkill}, ::getpid(), thread, 0) == 0 || errno != ESRCH;
}

// The slot that this thread had before, or one that nobody has; null where all are taken.
Slot* find_slot() {
  const pid_t self = own_thread();
  for (Slot& slot : slots) {
    if (slot.owner.load(std::memory_order_relaxed) == self) return &slot;
  }
  for (Slot& slot : slots) {
    pid_t owner = slot.owner.load(std::memory_order_relaxed);
    if (owner != 0 && is_alive(owner)) continue;
    if (slot.owner.compare_exchange_strong(owner, self)) return &slot;
  }
  return nullptr;
}

const char* route_library(const char* path) {
  if (!runtime::may_match(path) || std::strchr(path, '/') == nullptr) return path;
  const cacheshim::ErrnoGuard errno_guard;
  PathBuffer buffer;
  const cacheshim::RoutedPath routed =
      cacheshim::route_checked({AT_FDCWD, path}, cacheshim::CallKind::kLook, buffer);
  if (routed.path == path) return path;
  Slot* const slot = find_slot();
  if (slot == nullptr) return path;  // under the mount all is found all the same
  std::memcpy(slot->path.text, routed.path, std::strlen(routed.path) + 1);
  return slot->path.text;
}

void* no_dlopen(const char*, int) { return nullptr; }
void* no_dlmopen(Lmid_t, const char*, int) { return nullptr; }

}  // namespace

// What the instructions below go on with: two registers in both calling conventions.
struct cacheshim_library_call {
  const char* path;
  void* function;
};

extern "C" {

[[gnu::visibility("hidden"), gnu::used]] cacheshim_library_call cacheshim_prepare_dlopen(
    const char* path) {
  const auto function = real::dlopen.get();
  return {route_library(path), reinterpret_cast<void*>(function != nullptr ? function : no_dlopen)};
}

[[gnu::visibility("hidden"), gnu::used]] cacheshim_library_call cacheshim_prepare_dlmopen(
    const char* path) {
  const auto function = real::dlmopen.get();
  return {route_library(path),
          reinterpret_cast<void*>(function != nullptr ? function : no_dlmopen)};
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
  call cacheshim_prepare_dlopen
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  movq %rax, %rdi
  jmpq *%rdx
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
  pushq %rdx
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movq %rsi, %rdi
  call cacheshim_prepare_dlmopen
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  movq %rdx, %rcx
  popq %rdx
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  movq %rax, %rsi
  jmpq *%rcx
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
  str x1, [sp, #16]
  bl cacheshim_prepare_dlopen
  mov x16, x1
  ldr x1, [sp, #16]
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
  stp x29, x30, [sp, #-32]!
  .cfi_def_cfa_offset 32
  .cfi_offset 29, -32
  .cfi_offset 30, -24
  mov x29, sp
  stp x0, x2, [sp, #16]
  mov x0, x1
  bl cacheshim_prepare_dlmopen
  mov x16, x1
  mov x1, x0
  ldp x0, x2, [sp, #16]
  ldp x29, x30, [sp], #32
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
