// SPDX-License-Identifier: Apache-2.0
// A program for another architecture, i386. Exits with 0 if its environment has no LD_PRELOAD, with
// 1 if LD_PRELOAD is empty, and with 2 if LD_PRELOAD is not empty.
    .code32
    .text
    .globl _start
_start:
    movl (%esp), %ecx
    leal 8(%esp,%ecx,4), %esi
next:
    movl (%esi), %eax
    xorl %ebx, %ebx
    testl %eax, %eax
    jz done
    addl $4, %esi
    cmpl $0x505f444c, (%eax)        // "LD_P"
    jne next
    incl %ebx
    cmpb $0, 11(%eax)               // the character after "LD_PRELOAD="
    je done
    incl %ebx
done:
    movl $1, %eax
    int $0x80
    .section .note.GNU-stack, "", @progbits
