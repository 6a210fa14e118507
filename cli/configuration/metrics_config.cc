// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/metrics_config.h"

#include <arpa/inet.h>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "cacheshim_build.h"
#include "store/sys/toml_reader.h"

namespace cacheshim::cli {
namespace {

bool is_address(const std::string& text, int family) {
  unsigned char bytes[sizeof(in6_addr)];
  return ::inet_pton(family, text.c_str(), bytes) == 1;
}

// Parses "127.0.0.1:9477" or "[::1]:9477".
std::optional<metrics::Settings> parse_listen(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string address(text.substr(0, colon));
  const std::string_view digits = text.substr(colon + 1);
  const bool is_v6 = address.size() > 2 && address.front() == '[' && address.back() == ']';
  if (is_v6) address = address.substr(1, address.size() - 2);
  if (!is_address(address, is_v6 ? AF_INET6 : AF_INET)) return std::nullopt;
  std::uint16_t port = 0;
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || rest != digits.data() + digits.size() || port == 0)
    return std::nullopt;
  return metrics::Settings{.address = std::move(address), .port = port};
}

}  // namespace

metrics::Settings read_metrics(TomlReader& root, TomlProblem& problem) {
  const toml::table* const table = root.find_table("metrics");
  if (table == nullptr) return {};
  if (!CACHESHIM_HAS_METRICS) root.report("metrics", "this build serves no metrics");
  TomlReader metrics(*table, "metrics", problem);
  metrics::Settings settings;
  if (const auto listen = metrics.find_string("listen")) {
    if (const auto parsed = parse_listen(*listen)) {
      settings = *parsed;
    } else {
      metrics.report("listen",
                     "must be a numeric address and a port, such as 127.0.0.1:9477 or [::1]:9477");
    }
  }
  metrics.finish();
  return settings;
}

}  // namespace cacheshim::cli
