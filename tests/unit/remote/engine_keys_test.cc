// SPDX-License-Identifier: Apache-2.0
#include "remote/engine_keys.h"

#include <gtest/gtest.h>

namespace cacheshim::remote {
namespace {

TEST(EngineKeys, KindsAndGenerationsHaveOtherKeys) {
  const Settings settings;
  Settings next;
  next.generation = 1;
  EXPECT_EQ(object_key(settings, "triton/K"), "entries/0/triton/K");
  EXPECT_EQ(pack_key(next, "8/a/b"), "packs/1/8/a/b");
  EXPECT_EQ(unit_of_key(settings, "entries/0/triton/K"), "triton/K");
  EXPECT_EQ(pack_of_key(next, "packs/1/8/a/b"), "8/a/b");
}

TEST(EngineKeys, OtherKeysNameNoUnitAndNoPack) {
  const Settings settings;
  for (const char* key : {"packs/0/8/a", "entries/1/triton/K", "entries/0", "entries", ""})
    EXPECT_EQ(unit_of_key(settings, key), std::nullopt) << key;
  for (const char* key : {"entries/0/triton/K", "packs/1/8/a", "packs/0", "packs", ""})
    EXPECT_EQ(pack_of_key(settings, key), std::nullopt) << key;
}

}  // namespace
}  // namespace cacheshim::remote
