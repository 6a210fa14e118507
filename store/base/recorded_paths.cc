// SPDX-License-Identifier: Apache-2.0
#include "store/base/recorded_paths.h"

#include <nlohmann/json.hpp>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// Refuses larger files: a job can create a sparse file of any size, and reading it would exhaust the daemon's memory.
// For comparison, a Triton group file has 1 KiB.
constexpr std::size_t kMostFileBytes = std::size_t{8} << 20;
constexpr int kMostDepth = 64;

// Checks each string as the parser reads it, and stores only the last key. Does not check keys, because they are not
// paths.
class PathFinder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit PathFinder(std::string directory) : directory_(std::move(directory)) {}
  bool is_too_deep() const { return is_too_deep_; }
  bool has_path_outside() const { return is_structured_ && has_path_outside_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t& text) override {
    key_ = text;
    return true;
  }
  bool string(string_t& text) override {
    const bool is_absolute = text.starts_with('/');
    const bool is_outside = is_absolute ? !text.starts_with(directory_ + "/")
                                        : !key_.empty() && text.ends_with("/" + key_);
    has_path_outside_ = has_path_outside_ || is_outside;
    return true;
  }
  bool start_object(std::size_t) override { return enter(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  bool enter() {
    is_structured_ = true;
    is_too_deep_ = ++depth_ > kMostDepth;
    return !is_too_deep_;
  }
  bool leave() {
    --depth_;
    return true;
  }

  const std::string directory_;
  std::string key_;
  int depth_ = 0;
  bool is_structured_ = false;
  bool is_too_deep_ = false;
  bool has_path_outside_ = false;
};

}  // namespace

Result<bool> names_path_outside(int fd, const std::string& directory) {
  CACHESHIM_TRY(text, sys::read_all(fd, kMostFileBytes));
  PathFinder finder(directory);
  const bool is_json = nlohmann::json::sax_parse(text, &finder);
  if (finder.is_too_deep()) return Errno(EFBIG);
  return is_json && finder.has_path_outside();
}

}  // namespace cacheshim
