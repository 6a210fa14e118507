// SPDX-License-Identifier: Apache-2.0
#include "fuse/stale_retries.h"

namespace cacheshim {

void StaleRetries::begin(pid_t client) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (client == 0 || now - replaced_ > kAgain) return;
  clients_[client] = {.until = now + kPatience, .has_looked = false};
  has_clients_ = true;
}

void StaleRetries::looked(pid_t client) {
  if (!has_clients_) return;
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(client);
  if (found == clients_.end() || found->second.has_looked) return;  // it may do nothing else
  found->second = {.until = Clock::now() + kPatience, .has_looked = true};
}

void StaleRetries::end(pid_t client) {
  if (!has_clients_) return;
  {
    const std::lock_guard lock(mutex_);
    clients_.erase(client);
  }
  ended_.notify_all();
}

void StaleRetries::wait() {
  std::unique_lock lock(mutex_);
  const auto begin = Clock::now();
  for (auto now = begin; now < begin + kLongest; now = Clock::now()) {
    std::erase_if(clients_, [now](const auto& client) { return client.second.until <= now; });
    if (clients_.empty()) break;
    (void)ended_.wait_for(lock, kLook);
  }
  has_clients_ = !clients_.empty();
  replaced_ = Clock::now();
}

}  // namespace cacheshim
