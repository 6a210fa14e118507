// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <optional>
#include <utility>

// The result of a function that may fail: a value or an errno. Header-only, without exceptions or
// allocation, so that the preloaded library can use it as well.
namespace cacheshim {

// An errno value that a function returns. Never 0.
class [[nodiscard]] Errno {
 public:
  constexpr explicit Errno(int code) : code_(code) {}
  // Returns the errno of the last system call.
  static Errno last() { return Errno(errno); }
  constexpr int code() const { return code_; }
  friend constexpr bool operator==(Errno a, Errno b) { return a.code_ == b.code_; }
  friend constexpr bool operator==(Errno a, int code) { return a.code_ == code; }

 private:
  int code_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Errno error) : error_(error.code()) {}

  explicit operator bool() const { return value_.has_value(); }
  Errno error() const { return Errno(error_); }
  // Returns true if this is the error `code`, and not a value.
  bool failed_with(int code) const { return !value_ && error_ == code; }

  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  int error_ = 0;
  std::optional<T> value_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Errno error) : error_(error.code()) {}

  explicit operator bool() const { return error_ == 0; }
  Errno error() const { return Errno(error_); }
  bool failed_with(int code) const { return error_ == code; }

 private:
  int error_ = 0;
};

using Status = Result<void>;

}  // namespace cacheshim

// Declares `var` with the value of `expr`, or returns its error from the enclosing function.
#define CACHESHIM_TRY(var, expr)                  \
  auto var##_result = (expr);                     \
  if (!var##_result) return var##_result.error(); \
  auto var = *std::move(var##_result)

// Returns the error of `expr` from the enclosing function, if there is one.
#define CACHESHIM_CHECK(expr)                                \
  do {                                                       \
    if (auto cacheshim_result = (expr); !cacheshim_result) { \
      return cacheshim_result.error();                       \
    }                                                        \
  } while (false)
