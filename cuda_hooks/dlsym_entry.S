/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry points of dlsym and dlvsym.
 *
 * For RTLD_DEFAULT and RTLD_NEXT the result depends on the caller, which libc identifies by the
 * return address. If a C wrapper called libc, libc would use the wrapper's address: dlsym(RTLD_NEXT, "malloc")
 * in a library that wraps malloc would find that library's own function again, and RTLD_DEFAULT would
 * not find the symbols that only a caller opened with RTLD_LOCAL can see. So for these two handles the
 * code jumps to libc, with the stack and the argument registers as the caller left them. For all other
 * handles the result does not depend on the caller, so a C function handles them.
 *
 * cacheshim_next_dlsym and cacheshim_next_dlvsym hold the next functions of these names in the search order. Each is
 * null until the first call that needs it.
 */
#if defined(__x86_64__)

.macro ENTRY name
    .globl \name
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    leaq 1(%rdi), %rax              /* RTLD_NEXT is -1, RTLD_DEFAULT is 0 */
    cmpq $1, %rax
    ja cacheshim_\name\()_of_handle
    movq cacheshim_next_\name(%rip), %rax
    testq %rax, %rax
    je 1f
    jmp *%rax
1:  pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    call cacheshim_find_next_\name
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%rax
    .cfi_endproc
    .size \name, .-\name
.endm

#elif defined(__aarch64__)

.macro ENTRY name
    .globl \name
    .type \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint #34                        /* bti c */
    add x16, x0, #1                 /* RTLD_NEXT is -1, RTLD_DEFAULT is 0 */
    cmp x16, #1
    b.hi cacheshim_\name\()_of_handle
    adrp x16, cacheshim_next_\name
    ldr x16, [x16, #:lo12:cacheshim_next_\name]
    cbz x16, 1f
    br x16
1:  stp x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset 29, -48
    .cfi_offset 30, -40
    mov x29, sp
    stp x0, x1, [sp, #16]
    str x2, [sp, #32]
    bl cacheshim_find_next_\name
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldr x2, [sp, #32]
    ldp x29, x30, [sp], #48
    .cfi_restore 30
    .cfi_restore 29
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size \name, .-\name
.endm

#else
#error "dlsym has no entry for this architecture yet"
#endif

    .text
    ENTRY dlsym
    ENTRY dlvsym
    .section .note.GNU-stack, "", %progbits
