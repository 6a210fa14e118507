// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/cuda_config.h"

#include <fmt/format.h>
#include <regex.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "common/cuda_defaults.h"

namespace cacheshim::cli {
namespace {

struct Line {
  std::string program;
  std::string policy;
  std::string match;
};

bool is_pattern(const std::string& program) {
  return program.find_first_of("*?[\\") != std::string::npos;
}

bool fits_a_line(const std::string& text) {
  return text.find_first_of("\t\n") == std::string::npos && text.find('\0') == std::string::npos;
}

bool is_regular_expression(const std::string& text) {
  regex_t pattern;
  if (::regcomp(&pattern, text.c_str(), REG_EXTENDED | REG_NOSUB) != 0) return false;
  ::regfree(&pattern);
  return true;
}

void check_policy(const std::string& policy, TomlReader& reader, std::string_view key) {
  CudaPolicy parsed{};
  if (parse_cuda_policy(policy, parsed)) return;
  reader.report(key, "must be one of off, auto, force, select");
}

void check_match(const std::string& match, TomlReader& reader) {
  if (fits_a_line(match) && match.size() < kMaxCudaMatch && is_regular_expression(match)) return;
  reader.report("match", fmt::format("must be a POSIX extended regular expression of less than {} "
                                     "bytes, without tabs and line breaks",
                                     kMaxCudaMatch));
}

// Reads the settings for `program`: `eager` and `match` of one table.
Line read_line(TomlReader& reader, std::string program) {
  Line line{std::move(program), reader.find_string("eager").value_or("auto"),
            reader.find_string("match").value_or("")};
  check_policy(line.policy, reader, "eager");
  check_match(line.match, reader);
  return line;
}

Line read_program(TomlReader& programs, const std::string& program, TomlProblem& problem) {
  const toml::node* const node = programs.find_node(program);
  if (const toml::table* const table = node->as_table()) {
    TomlReader reader(*table, "cuda.programs." + program, problem);
    Line line = read_line(reader, program);
    reader.finish();
    return line;
  }
  const std::string policy = programs.find_string(program).value_or("auto");
  check_policy(policy, programs, program);
  return {program, policy, ""};
}

std::vector<Line> read_programs(const toml::table& table, TomlProblem& problem) {
  TomlReader programs(table, "cuda.programs", problem);
  std::vector<Line> lines;
  for (const auto& [key, node] : table) {
    const std::string program(key.str());
    if (program.empty() || !fits_a_line(program) || program.find('/') != std::string::npos) {
      programs.report(program, "must be the last part of a program's path, or a pattern for it");
    }
    lines.push_back(read_program(programs, program, problem));
  }
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    const std::size_t size_a = a.program.size();
    const std::size_t size_b = b.program.size();
    return std::tuple(is_pattern(a.program), size_b, a.program) <
           std::tuple(is_pattern(b.program), size_a, b.program);
  });
  return lines;
}

}  // namespace

std::string read_cuda_defaults(TomlReader& root, TomlProblem& problem) {
  const toml::table* const table = root.find_table("cuda");
  if (table == nullptr) return "";
  TomlReader cuda(*table, "cuda", problem);
  std::vector<Line> lines;
  if (const toml::table* const programs = cuda.find_table("programs")) {
    lines = read_programs(*programs, problem);
  }
  lines.push_back(read_line(cuda, "*"));
  cuda.finish();
  std::string text;
  for (const Line& line : lines) {
    text += fmt::format("{}\t{}\t{}\n", line.program, line.policy, line.match);
  }
  if (text.size() > kMaxCudaDefaults) {
    root.report("cuda",
                fmt::format("is longer than the {} bytes that a process reads", kMaxCudaDefaults));
  }
  return text;
}

}  // namespace cacheshim::cli
