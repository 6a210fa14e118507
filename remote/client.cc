// SPDX-License-Identifier: Apache-2.0
#include "remote/client.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cstring>

#include "remote/signing_keys.h"
#include "store/sys/json_text.h"
#include "store/sys/sys.h"
#include "store/sys/toml_reader.h"

namespace cacheshim::remote {
namespace {

using nlohmann::json;

constexpr std::size_t kMostSecretsBytes = 65536;
constexpr JsonLimits kPageLimits{std::size_t{64} << 20, 1};  // of a list of keys

RemoteError broken_helper(const char* what) {
  return {RemoteError::Kind::kUnavailable, fmt::format("cacheshim-remote has failed: {}", what)};
}

RemoteError refused(std::string text) { return {RemoteError::Kind::kRefused, std::move(text)}; }

Outcome<json> read_secrets(const std::string& path) {
  if (path.empty()) return json::object();
  const auto file = sys::open_path(path, O_RDONLY | O_NONBLOCK);
  const auto st = file ? sys::stat_fd(file->get()) : file.error();
  const auto text = st ? sys::read_all(file->get(), kMostSecretsBytes) : st.error();
  if (!text)
    return refused(
        fmt::format("cannot read the secrets '{}': {}", path, std::strerror(text.error().code())));
  if (const std::string why = exposure_of_secret(*st); !why.empty()) {
    return refused(fmt::format("cannot use the secrets '{}': {}", path, why));
  }
  TomlProblem problem(path);
  json secrets = json::object();
  if (const auto table = parse_toml(*text, problem)) {
    TomlReader reader(*table, "", problem);
    for (const char* name : {"user", "password", "access_key", "secret_key", "session_token"}) {
      if (const auto value = reader.find_string(name)) secrets[name] = *value;
    }
    reader.finish();
  }
  if (problem) return refused(problem.message());
  return secrets;
}

}  // namespace

std::variant<HelperProcess, RemoteError> start_helper(const Settings& settings,
                                                      const std::string& program) {
  auto secrets = read_secrets(settings.secrets);
  if (auto* const error = std::get_if<RemoteError>(&secrets)) return std::move(*error);
  return HelperProcess::start({.program = program,
                               .uid = settings.uid,
                               .gid = settings.gid,
                               .urls = settings.urls,
                               .secrets = std::get<json>(std::move(secrets)),
                               .timeout = settings.timeout});
}

Outcome<Message> Client::call(json request, int file) {
  request["id"] = 1;
  if (!send_message(helper_.socket(), request, file)) return broken_helper("it ended");
  auto reply = receive_message(helper_.socket());
  if (!reply) return broken_helper("it ended");
  if (RemoteError error = error_of(reply->json); !error.text.empty()) return error;
  return *std::move(reply);
}

Outcome<std::optional<std::string>> Client::get(const std::string& key, std::size_t most_bytes) {
  auto called = call({{"op", "get"}, {"key", key}, {"most", most_bytes}});
  if (auto* const error = std::get_if<RemoteError>(&called)) return std::move(*error);
  const Message& reply = std::get<Message>(called);
  if (!reply.json.value("found", false)) return std::nullopt;
  auto object = read_sealed_file(reply.file.get(), most_bytes);
  if (!object) return broken_helper("it sent no object");
  return std::optional(*std::move(object));
}

Outcome<bool> Client::put_if_absent(const std::string& key, std::string_view object) {
  const auto file = make_sealed_file(object);
  if (!file) return RemoteError{RemoteError::Kind::kUnavailable, "no memory for the object"};
  auto called = call({{"op", "put"}, {"key", key}}, file->get());
  if (auto* const error = std::get_if<RemoteError>(&called)) return std::move(*error);
  return std::get<Message>(called).json.value("stored", false);
}

Outcome<bool> Client::remove(const std::string& key) {
  auto called = call({{"op", "remove"}, {"key", key}});
  if (auto* const error = std::get_if<RemoteError>(&called)) return std::move(*error);
  return std::get<Message>(called).json.value("existed", false);
}

Outcome<Client::Keys> Client::keys_since(const std::string& position, std::size_t most) {
  auto called = call({{"op", "keys"}, {"since", position}, {"most", most}});
  if (auto* const error = std::get_if<RemoteError>(&called)) return std::move(*error);
  const Message& reply = std::get<Message>(called);
  const auto text = read_sealed_file(reply.file.get(), kPageLimits.bytes);
  const json keys = text ? parse_json(*text, kPageLimits) : json();
  if (!keys.is_array()) return broken_helper("it sent no list of keys");
  Keys page{{}, reply.json.value("position", ""), reply.json.value("last", true)};
  for (const json& key : keys) {
    if (key.is_string()) page.keys.push_back(key);
  }
  return page;
}

}  // namespace cacheshim::remote
