// SPDX-License-Identifier: Apache-2.0
#include "remote/helper/tier_url.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "remote/engines/file_tier.h"
#include "remote/engines/redis_tier.h"
#include "remote/engines/s3_tier.h"
#include "remote/engines/stacked_tier.h"

namespace cacheshim::remote {
namespace {

struct Url {
  std::string text;
  std::string scheme;
  std::string host;  // with the port
  std::string path;  // with the leading '/'; or ""
  std::map<std::string, std::string> options;
};

[[noreturn]] void refuse(const std::string& url, std::string_view why) {
  throw std::invalid_argument(fmt::format("'{}': {}", url, why));
}

std::string take_option(Url& url, const char* name) {
  const auto node = url.options.extract(name);
  return node.empty() ? "" : std::move(node.mapped());
}

void refuse_other_options(const Url& url) {
  if (!url.options.empty())
    refuse(url.text, fmt::format("unknown option '{}'", url.options.begin()->first));
}

void read_options(Url& url, std::string_view text) {
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    const auto equals = one.find('=');
    if (equals == one.npos) refuse(url.text, fmt::format("'{}' must be NAME=VALUE", one));
    url.options[std::string(one.substr(0, equals))] = one.substr(equals + 1);
  }
}

Url parse_url(const std::string& text) {
  Url url;
  url.text = text;
  const auto colon = text.find("://");
  if (colon == text.npos) refuse(text, "must begin with redis://, s3:// or file://");
  url.scheme = text.substr(0, colon);
  std::string_view rest = std::string_view(text).substr(colon + 3);
  if (const auto question = rest.find('?'); question != rest.npos) {
    read_options(url, rest.substr(question + 1));
    rest = rest.substr(0, question);
  }
  const auto slash = std::min(rest.find('/'), rest.size());
  url.host = rest.substr(0, slash);
  url.path = rest.substr(slash);
  if (url.host.find('@') != url.host.npos) {
    refuse(fmt::format("{}://…", url.scheme),
           "must not contain a user or password: set [remote] secrets");
  }
  return url;
}

int number_of(const Url& url, std::string_view text, const char* what, int most) {
  int number = -1;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size() || number < 0 || number > most) {
    refuse(url.text, fmt::format("'{}' is not a {}", text, what));
  }
  return number;
}

std::unique_ptr<RemoteTier> make_redis(Url url, const nlohmann::json& secrets,
                                       std::chrono::milliseconds timeout) {
  RedisOptions options;
  std::string database;
  if (url.scheme == "redis+unix") {
    options.unix_socket = url.path;
    database = take_option(url, "database");
    if (!url.host.empty() || url.path.size() < 2) refuse(url.text, "must be redis+unix:///SOCKET");
  } else {
    const auto colon = std::min(url.host.rfind(':'), url.host.size());
    options.host = url.host.substr(0, colon);
    if (colon < url.host.size()) {
      options.port =
          static_cast<std::uint16_t>(number_of(url, url.host.substr(colon + 1), "port", 65535));
    }
    if (options.host.empty()) refuse(url.text, "names no host");
    if (url.path.size() > 1) database = url.path.substr(1);
  }
  if (!database.empty()) options.database = number_of(url, database, "number of a database", 65535);
  if (const std::string prefix = take_option(url, "prefix"); !prefix.empty())
    options.prefix = prefix;
  refuse_other_options(url);
  options.user = secrets.value("user", "");
  options.password = secrets.value("password", "");
  options.timeout = timeout;
  return std::make_unique<RedisTier>(std::move(options));
}

std::unique_ptr<RemoteTier> make_s3(Url url, const nlohmann::json& secrets,
                                    std::chrono::milliseconds timeout) {
  S3Options options;
  options.bucket = url.host;
  if (options.bucket.empty()) refuse(url.text, "names no bucket");
  if (url.path.size() > 1) options.prefix = url.path.substr(1);
  options.endpoint = take_option(url, "endpoint");
  options.region = take_option(url, "region");
  refuse_other_options(url);
  options.access_key = secrets.value("access_key", "");
  options.secret_key = secrets.value("secret_key", "");
  options.session_token = secrets.value("session_token", "");
  options.timeout = timeout;
  return std::make_unique<S3Tier>(std::move(options));
}

std::unique_ptr<RemoteTier> make_one(const std::string& text, const nlohmann::json& secrets,
                                     std::chrono::milliseconds timeout) {
  Url url = parse_url(text);
  if (url.scheme == "redis" || url.scheme == "redis+unix")
    return make_redis(std::move(url), secrets, timeout);
  if (url.scheme == "s3") return make_s3(std::move(url), secrets, timeout);
  if (url.scheme != "file")
    refuse(text, "must begin with redis://, redis+unix://, s3:// or file://");
  if (!url.host.empty() || url.path.size() < 2) refuse(text, "must be file:///DIRECTORY");
  refuse_other_options(url);
  return std::make_unique<FileTier>(url.path, timeout);
}

}  // namespace

std::unique_ptr<RemoteTier> make_tier(const std::vector<std::string>& urls,
                                      const nlohmann::json& secrets,
                                      std::chrono::milliseconds timeout) {
  if (urls.empty() || urls.size() > 2) throw std::invalid_argument("one or two URLs are needed");
  auto tier = make_one(urls.front(), secrets, timeout);
  if (urls.size() == 1) return tier;
  return std::make_unique<StackedTier>(std::move(tier), make_one(urls.back(), secrets, timeout));
}

}  // namespace cacheshim::remote
