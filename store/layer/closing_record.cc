// SPDX-License-Identifier: Apache-2.0
#include "store/layer/closing_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "store/sys/json_text.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

std::string record_path(const std::string& run_dir) { return run_dir + ".closed"; }

}  // namespace

Status record_closing(const std::string& run_dir, const std::string& cycle) {
  if (run_dir.empty()) return {};
  const std::string path = record_path(run_dir);
  CACHESHIM_TRY(directory, sys::open_path("/" + std::string(parent_path(path.substr(1))),
                                          O_RDONLY | O_DIRECTORY));
  const nlohmann::ordered_json json = {{"cycle", cycle}};
  return sys::replace_file(directory.get(), std::string(base_name(path)), dump_json(json) + "\n",
                           0644);
}

void forget_closing(const std::string& run_dir) {
  // Ignores errors: usually the file does not exist.
  if (!run_dir.empty()) (void)::unlink(record_path(run_dir).c_str());
}

std::optional<std::string> recorded_closing(const std::string& run_dir) {
  if (run_dir.empty()) return std::nullopt;
  const auto fd = sys::open_path(record_path(run_dir), O_RDONLY);
  const auto text = fd ? sys::read_all(fd->get()) : Result<std::string>(fd.error());
  if (!text) return std::nullopt;
  const auto json = parse_json(*text);
  if (!json.is_object()) return std::nullopt;
  const auto cycle = json.find("cycle");
  return cycle != json.end() && cycle->is_string() ? cycle->get<std::string>() : "0";
}

}  // namespace cacheshim
