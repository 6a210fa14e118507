// SPDX-License-Identifier: Apache-2.0
#pragma once

// Annotations for Clang's thread safety analysis: they state which lock protects which data, and which locks a function
// needs or takes. `clang -Wthread-safety` checks them (scripts/test, stage `locks`); for other compilers the macros are
// empty. Source: https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#ifdef __clang__
#define THREAD_ANNOTATION(annotation) __attribute__((annotation))
#else
#define THREAD_ANNOTATION(annotation)
#endif

// ---- Types: a lock; an object that holds a lock during its lifetime.
#define CAPABILITY(name) THREAD_ANNOTATION(capability(name))
#define SCOPED_CAPABILITY THREAD_ANNOTATION(scoped_lockable)

// ---- Members: the lock protects the member (GUARDED_BY), or the object that it points to (PT_GUARDED_BY).
#define GUARDED_BY(lock) THREAD_ANNOTATION(guarded_by(lock))
#define PT_GUARDED_BY(lock) THREAD_ANNOTATION(pt_guarded_by(lock))

// ---- Functions: the caller must hold these locks exclusively (REQUIRES) or at least shared (REQUIRES_SHARED), or
// must hold none of them (EXCLUDES).
#define REQUIRES(...) THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) THREAD_ANNOTATION(requires_shared_capability(__VA_ARGS__))
#define EXCLUDES(...) THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

// ---- Functions that take or release a lock, or return a reference to it.
#define ACQUIRE(...) THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define TRY_ACQUIRE_SHARED(...) THREAD_ANNOTATION(try_acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...) THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
#define RELEASE_GENERIC(...) THREAD_ANNOTATION(release_generic_capability(__VA_ARGS__))
#define RETURN_CAPABILITY(lock) THREAD_ANNOTATION(lock_returned(lock))

// ---- For lambdas and callbacks: when Clang analyzes them, it does not know which locks the caller holds.
#define ASSERT_CAPABILITY(lock) THREAD_ANNOTATION(assert_capability(lock))
#define ASSERT_SHARED_CAPABILITY(lock) THREAD_ANNOTATION(assert_shared_capability(lock))

// Excludes a function from the analysis. Give the reason in a comment.
#define NO_THREAD_SAFETY_ANALYSIS THREAD_ANNOTATION(no_thread_safety_analysis)
