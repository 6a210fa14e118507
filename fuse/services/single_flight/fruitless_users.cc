// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/fruitless_users.h"

#include <algorithm>

namespace cacheshim {

bool FruitlessUsers::charge(uid_t uid, Duration waited, Time now) {
  std::erase_if(records_, [now](const auto& each) { return each.second.is_over(now); });
  Record& record = records_[uid];
  if (now < record.excluded_until) return false;
  if (record.last_charge + kPeriod <= now) record.charged = Duration(0);
  record.last_charge = now;
  record.charged += waited;
  if (record.charged < limit_) return false;
  record.charged = Duration(0);
  record.excluded_until = now + kPeriod;
  return true;
}

void FruitlessUsers::forgive(uid_t uid, Time now) {
  const auto found = records_.find(uid);
  if (found == records_.end()) return;
  Record& record = found->second;
  if (record.excluded_until <= now || now < record.forgivable_from) return;
  record.charged = Duration(0);
  record.excluded_until = Time::min();
  record.forgivable_from = now + kPeriod;
}

bool FruitlessUsers::has(uid_t uid, Time now) const {
  const auto found = records_.find(uid);
  return found != records_.end() && now < found->second.excluded_until;
}

std::vector<uid_t> FruitlessUsers::list(Time now) const {
  std::vector<uid_t> uids;
  for (const auto& [uid, record] : records_) {
    if (now < record.excluded_until) uids.push_back(uid);
  }
  std::sort(uids.begin(), uids.end());
  return uids;
}

}  // namespace cacheshim
