// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "remote/engines/file_tier.h"
#include "tests/unit/support/replaced_calls.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim::remote {

// Two FileTiers over one directory, scratch/shared. The destructor resets the hooks of replaced_calls.h.
class FileTierTest : public ::testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kNoLimit = std::size_t{1} << 30;
  static constexpr std::chrono::seconds kTtl{60};

  static int fail_with(int code) {
    errno = code;
    return -1;
  }

  // Returns the error that `action` throws, or "none".
  template <class Action>
  static std::string error_of(Action action) {
    try {
      (void)action();
      return "none";
    } catch (const TierError& error) {
      constexpr const char* kNames[] = {"unavailable: ", "full: ", "refused: "};
      return kNames[static_cast<int>(error.kind())] + std::string(error.what());
    }
  }

  static std::vector<std::string> unusual_keys() {
    return {"a",
            ".",
            "..",
            ".hidden",
            "a/b/c",
            "%2F",
            "a~b",
            "Case",
            "case",
            "key with spaces",
            "\xC3\xA9\xE2\x82\xAC",
            std::string(200, 'x'),
            std::string(201, 'x'),
            std::string(1024, '/'),
            std::string(1024, 'x')};
  }

  FileTierTest() { std::filesystem::create_directory(path_); }
  ~FileTierTest() override {
    on_link = nullptr;
    before_statx = nullptr;
    before_touch = nullptr;
  }

  FileTier make(std::chrono::milliseconds slack = FileTier::kSlack) const {
    return FileTier(path_, std::chrono::milliseconds(2000), slack);
  }
  // Returns the files below a subdirectory, sorted.
  std::vector<std::string> files(const std::string& below) const {
    std::vector<std::string> found;
    if (!std::filesystem::exists(path_ + "/" + below)) return found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_ + "/" + below)) {
      if (!entry.is_directory()) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  static void set_age(const std::string& file, std::chrono::seconds age) {
    std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() - age);
  }
  // Returns the names of the lease files of the only key that has leases.
  std::vector<std::string> lease_numbers() const {
    std::vector<std::string> numbers;
    for (const std::string& file : files("leases")) {
      numbers.push_back(std::filesystem::path(file).filename());
    }
    return numbers;
  }

  Scratch scratch_;
  const std::string path_ = scratch_ / "shared";
  FileTier tier_ = make();
  FileTier other_ = make();
};

}  // namespace cacheshim::remote
