// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/data_step.h"

#include <err.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <sstream>

namespace cacheshim::parity {
namespace {

enum class Number {
  kNone,
  kFile,
  kSlot,
  kOther,
  kMapping,
  kMode,
  kFlags,
  kAt,
  kFrom,
  kLength,
  kFill,
  kKeep,
  kBlockAt,
  kBlocks
};

constexpr const char* kNumberNames[] = {"",   "file", "slot",   "to",   "map",  "mode", "flags",
                                        "at", "from", "length", "fill", "keep", "at",   "length"};

constexpr struct {
  DataCall call;
  const char* name;
  unsigned weight;
  std::array<Number, DataStep::kMostNumbers> numbers;
} kCalls[] = {
    {DataCall::kOpen, "open", 8, {Number::kSlot, Number::kFile, Number::kMode}},
    {DataCall::kClose, "close", 3, {Number::kSlot}},
    {DataCall::kRead, "read", 4, {Number::kSlot, Number::kLength}},
    {DataCall::kPread, "pread", 8, {Number::kSlot, Number::kAt, Number::kLength}},
    {DataCall::kWrite, "write", 6, {Number::kSlot, Number::kLength, Number::kFill}},
    {DataCall::kPwrite, "pwrite", 10, {Number::kSlot, Number::kAt, Number::kLength, Number::kFill}},
    {DataCall::kSeek, "seek", 2, {Number::kSlot, Number::kAt}},
    {DataCall::kSetFlags, "setfl", 4, {Number::kSlot, Number::kFlags}},
    {DataCall::kTruncate, "truncate", 2, {Number::kFile, Number::kAt}},
    {DataCall::kFtruncate, "ftruncate", 3, {Number::kSlot, Number::kAt}},
    {DataCall::kMap, "map", 4, {Number::kMapping, Number::kSlot}},
    {DataCall::kUnmap, "unmap", 1, {Number::kMapping}},
    {DataCall::kLoad, "load", 5, {Number::kMapping, Number::kAt, Number::kLength}},
    {DataCall::kStore, "store", 6, {Number::kMapping, Number::kAt, Number::kLength, Number::kFill}},
    {DataCall::kMsync, "msync", 2, {Number::kMapping}},
    {DataCall::kFsync, "fsync", 1, {Number::kSlot}},
    {DataCall::kPunch, "punch", 4, {Number::kSlot, Number::kAt, Number::kLength}},
    {DataCall::kZero, "zero", 3, {Number::kSlot, Number::kAt, Number::kLength, Number::kKeep}},
    {DataCall::kReserve,
     "reserve",
     2,
     {Number::kSlot, Number::kAt, Number::kLength, Number::kKeep}},
    {DataCall::kCollapse, "collapse", 1, {Number::kSlot, Number::kBlockAt, Number::kBlocks}},
    {DataCall::kInsert, "insert", 1, {Number::kSlot, Number::kBlockAt, Number::kBlocks}},
    {DataCall::kCopy,
     "copy",
     4,
     {Number::kSlot, Number::kFrom, Number::kOther, Number::kAt, Number::kLength}},
    {DataCall::kData, "data", 2, {Number::kSlot, Number::kAt}},
    {DataCall::kHole, "hole", 2, {Number::kSlot, Number::kAt}},
    {DataCall::kCheck, "check", 3, {Number::kFile}},
};

const auto& row_of(DataCall call) {
  return *std::find_if(std::begin(kCalls), std::end(kCalls),
                       [call](const auto& row) { return row.call == call; });
}

const auto& random_row(std::mt19937& random) {
  unsigned total = 0;
  for (const auto& row : kCalls) total += row.weight;
  auto left = static_cast<unsigned>(random() % total);
  const auto* row = kCalls;
  for (; left >= row->weight; ++row) left -= row->weight;
  return *row;
}

// Prefers small offsets and those near a page boundary, where errors are likely.
std::size_t random_offset(std::mt19937& random) {
  const std::size_t most = random() % 3 == 0 ? kMostBytes : 12 * kBlock;
  const std::size_t any = random() % most;
  if (random() % 2 == 0) return any;
  const std::size_t edge = any / kBlock * kBlock + random() % 3;
  return edge == 0 ? 0 : edge - 1;
}

std::size_t random_length(std::mt19937& random) {
  static constexpr std::size_t kMost[] = {4, 700, 3 * kBlock, 40 * kBlock};
  const std::size_t length = 1 + random() % kMost[random() % std::size(kMost)];
  return random() % 4 == 0 ? (length / kBlock + 1) * kBlock : length;
}

std::size_t random_number(Number number, std::mt19937& random) {
  switch (number) {
    case Number::kNone:
      return 0;
    case Number::kFile:
      return random() % 3 == 0 ? 1 : 0;
    case Number::kSlot:
    case Number::kOther:
      return random() % kSlots;
    case Number::kMapping:
      return random() % kMappings;
    case Number::kMode:
      return random() % kOpenModes;
    case Number::kFlags:
      return random() % kStatusFlags;
    case Number::kAt:
    case Number::kFrom:
      return random_offset(random);
    case Number::kLength:
      return random_length(random);
    case Number::kFill:
      return random() % 1000;
    case Number::kKeep:
      return random() % 2;
    case Number::kBlockAt:
      return random() % 10 * kBlock;
    case Number::kBlocks:
      return (1 + random() % 4) * kBlock;
  }
  return 0;
}

}  // namespace

DataStep DataStep::random(std::mt19937& random) {
  const auto& row = random_row(random);
  DataStep step;
  step.call = row.call;
  for (std::size_t i = 0; i < kMostNumbers; ++i) {
    step.numbers[i] = random_number(row.numbers[i], random);
  }
  return step;
}

std::string DataStep::text() const {
  const auto& row = row_of(call);
  std::string all = row.name;
  for (std::size_t i = 0; i < kMostNumbers && row.numbers[i] != Number::kNone; ++i) {
    all += std::string(" ") + kNumberNames[static_cast<std::size_t>(row.numbers[i])] + "=" +
           std::to_string(numbers[i]);
  }
  return all;
}

DataStep DataStep::parse(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  words >> word;
  const auto* row = std::find_if(std::begin(kCalls), std::end(kCalls),
                                 [&](const auto& one) { return word == one.name; });
  if (row == std::end(kCalls)) errx(2, "no such step: %s", text.c_str());
  DataStep step;
  step.call = row->call;
  for (std::size_t i = 0; i < kMostNumbers && row->numbers[i] != Number::kNone; ++i) {
    const std::string name = kNumberNames[static_cast<std::size_t>(row->numbers[i])];
    if (!(words >> word) || !word.starts_with(name + "=")) errx(2, "bad step: %s", text.c_str());
    step.numbers[i] = std::stoul(word.substr(name.size() + 1));
  }
  return step;
}

std::string filled(std::size_t fill, std::size_t length) {
  std::string bytes(length, '\0');
  std::uint32_t state = static_cast<std::uint32_t>(fill) * 2654435761U + 1;
  for (char& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<char>(1 + (state >> 24) % 255);
  }
  return bytes;
}

}  // namespace cacheshim::parity
