// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <random>
#include <string>

// One step on a file's bytes: a call and its numbers, such as position and size.
namespace cacheshim::parity {

constexpr std::size_t kMostBytes = 1 << 20;  // the largest size of a file
constexpr unsigned kFiles = 2;
constexpr unsigned kSlots = 4;  // the number of descriptors
constexpr unsigned kMappings = 3;
constexpr unsigned kBlock = 4096;  // the alignment of collapse and insert

enum class DataCall {
  kOpen,
  kClose,
  kRead,
  kPread,
  kWrite,
  kPwrite,
  kSeek,
  kSetFlags,
  kTruncate,
  kFtruncate,
  kMap,
  kUnmap,
  kLoad,
  kStore,
  kMsync,
  kFsync,
  kPunch,
  kZero,
  kReserve,
  kCollapse,
  kInsert,
  kCopy,
  kData,
  kHole,
  kCheck
};

// How a step opens a file.
enum OpenMode : unsigned { kReadOnly, kReadWrite, kAppend, kReadAppend, kWriteOnly, kTruncating };
constexpr unsigned kOpenModes = 6;

// The flags that a step sets by fcntl(F_SETFL). A step combines them by bitwise OR.
enum StatusFlag : unsigned { kSetsAppend = 1, kSetsNonblock = 2, kSetsNoatime = 4 };
constexpr unsigned kStatusFlags = 8;

struct DataStep {
  static constexpr std::size_t kMostNumbers = 5;

  DataCall call = DataCall::kCheck;
  std::array<std::size_t, kMostNumbers> numbers{};

  static DataStep random(std::mt19937& random);
  std::string text() const;  // "pwrite slot=2 at=4096 length=100 fill=7"
  // Parses the result of text(). Exits on any other text.
  static DataStep parse(const std::string& text);
};

// Returns the bytes that a step writes. None of them is zero, and different fills give different
// bytes.
std::string filled(std::size_t fill, std::size_t length);

}  // namespace cacheshim::parity
