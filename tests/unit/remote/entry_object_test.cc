// SPDX-License-Identifier: Apache-2.0
#include "remote/entry_object.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/support/entry_object_fixture.h"

namespace cacheshim::remote {
namespace {

using Json = nlohmann::json;

TEST_F(EntryObject, EveryChangedBitIsRefused) {
  const std::string object = crafted();
  ASSERT_EQ(verdict(object), "accepted");
  ASSERT_LT(object.size(), 1000U);
  for (std::size_t at = 0; at < object.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::string changed = object;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      ASSERT_NE(verdict(changed), "accepted") << "byte " << at << ", bit " << bit;
    }
  }
}

TEST_F(EntryObject, EveryTruncationIsRefused) {
  const std::string object = crafted();
  for (std::size_t size = 0; size < object.size(); ++size) {
    ASSERT_NE(verdict(std::string(object.substr(0, size))), "accepted") << size;
  }
  EXPECT_EQ(verdict(object + '\0'), "corrupt");
  EXPECT_EQ(verdict(object), "accepted");
}

TEST_F(EntryObject, OnlyAllowedKeysAreTrusted) {
  std::string object = crafted();
  allowed_ = {key_of(8).public_key()};
  EXPECT_EQ(verdict(object), "untrusted");
  // The header names the allowed key, but another key has signed.
  const KeyId id = key_of(8).public_key().id();
  std::copy(id.begin(), id.end(), object.begin() + 12);
  EXPECT_EQ(verdict(object), "untrusted");
  allowed_.clear();
  EXPECT_EQ(verdict(object), "untrusted");
}

TEST_F(EntryObject, SignatureOfAnotherDomainIsRefused) {
  std::string object = crafted();
  const std::string manifest = to_text(opened(object));
  const Signature signature = key_.sign("something else", manifest);
  std::copy(signature.begin(), signature.end(), object.begin() + 20);
  EXPECT_EQ(verdict(object), "untrusted");
}

TEST_F(EntryObject, NothingIsParsedBeforeTheSignatureIsVerified) {
  for (const std::string& manifest : {std::string("{}"), std::string(kMostManifestBytes, '['),
                                      to_text(opened(crafted())) + " "}) {
    EXPECT_EQ(verdict(sign_object(manifest, "archive", key_of(9))), "untrusted");
  }
}

TEST_F(EntryObject, OtherUnitsGenerationsAndFormatsAreStale) {
  const std::string object = crafted();
  EXPECT_EQ(verdict(object, {"triton/OTHER", 3}), "stale");
  EXPECT_EQ(verdict(object, {"triton", 3}), "stale");
  EXPECT_EQ(verdict(object, {kUnit, 2}), "stale");
  EXPECT_EQ(verdict(object, {kUnit, 4}), "stale");
  Json json = Json::parse(to_text(opened(object)));
  json["format"] = 2;
  EXPECT_EQ(verdict(sign_object(json.dump(), "", key_)), "stale");
}

}  // namespace
}  // namespace cacheshim::remote
