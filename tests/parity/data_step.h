// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <random>
#include <string>

// One step on a file's bytes: a call, and numbers that say where and how much.
namespace cacheshim::parity {

constexpr std::size_t kMostBytes = 1 << 20;  // of a file
constexpr unsigned kFiles = 2;
constexpr unsigned kSlots = 4;  // descriptors
constexpr unsigned kMappings = 3;
constexpr unsigned kBlock = 4096;  // what collapse and insert are aligned to

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

// What fcntl(F_SETFL) leaves set; a combination is one number.
enum StatusFlag : unsigned { kSetsAppend = 1, kSetsNonblock = 2, kSetsNoatime = 4 };
constexpr unsigned kStatusFlags = 8;

struct DataStep {
  static constexpr std::size_t kMostNumbers = 5;

  DataCall call = DataCall::kCheck;
  std::array<std::size_t, kMostNumbers> numbers{};

  static DataStep random(std::mt19937& random);
  std::string text() const;  // "pwrite slot=2 at=4096 length=100 fill=7"
  // What text() gave. Ends the program on anything else.
  static DataStep parse(const std::string& text);
};

// Bytes that a step writes: none of them is zero, and those of two fills differ.
std::string filled(std::size_t fill, std::size_t length);

}  // namespace cacheshim::parity
