// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/remote/make_remote_entries.h"

#include <utility>
#include <variant>

#include "fuse/services/remote/remote_exchange.h"
#include "store/locks/heartbeats.h"
#include "store/sys/sys.h"

namespace cacheshim {

std::unique_ptr<RemoteEntries> make_remote_entries(EventLoop& loop,
                                                   const remote::Settings& settings,
                                                   const std::string& helper,
                                                   const RemoteParts& parts) {
  if (settings.urls.empty()) return nullptr;
  auto loaded = remote::load_keys(settings);
  auto* const keys = std::get_if<remote::ExchangeKeys>(&loaded);
  remote::AsyncClient::StartHelper start = [settings, helper] {
    return remote::start_helper(settings, helper);
  };
  if (keys == nullptr) start = [error = std::get<remote::RemoteError>(loaded)] { return error; };
  return std::make_unique<RemoteExchange>(
      loop, settings, keys != nullptr ? std::move(*keys) : remote::ExchangeKeys(),
      Heartbeats::unique_name(node_name()), std::move(start), parts);
}

}  // namespace cacheshim
