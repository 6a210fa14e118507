// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "remote/engines/remote_tier.h"

namespace cacheshim::remote {

struct S3Options {
  // "https://HOST[:PORT]" or "http://HOST[:PORT]"; "" is the endpoint of AWS in the region.
  std::string endpoint;
  std::string region;  // for example "us-east-1", which most other servers accept
  std::string bucket;  // must exist
  std::string prefix;  // the object of a key is named PREFIX/KEY, or KEY if the prefix is ""
  std::string access_key;
  std::string secret_key;
  std::string session_token;                 // "" unless the credentials are temporary
  std::chrono::milliseconds timeout{10000};  // of a whole call, which is up to three requests
};

// An engine on a server that speaks the S3 protocol. Each object is one object of the bucket. The server must honor
// `If-None-Match: *` of PutObject. AWS (since August 2024) and SeaweedFS (tested: 4.48) do; for another server, see its
// manual. On a server that ignores it, a later writer replaces the object. The credentials need s3:GetObject,
// s3:PutObject, s3:DeleteObject and s3:ListBucket. Without s3:ListBucket, AWS answers 403 for an absent key.
//
// put_if_absent(): a server may store the object although its reply is lost. The call then throws, or libcurl repeats
// the request on a new connection: the result is then kExists, although this caller stored the object. SeaweedFS 4.48
// makes concurrent writers of one key wait for each other in steps of 1 s (8 writers: up to 4 s).
// remove() asks whether the object exists and then deletes it, because S3 does not say whether it has deleted one. Of
// several callers that remove a key at the same time, more than one may get true.
// wait() polls: a HEAD request after 100 ms, then at intervals that double up to 1 s. It returns early if the object
// was there before the call.
//
// keys_since(): S3 lists objects by name, not by time. A position is therefore a cursor (a continuation token) in a
// pass over all objects of the prefix. The last page of a pass has `is_last` and the position "", from which the next
// pass begins. A key that is stored during a pass is in the same pass or in the next one. If the server rejects a
// cursor, for example because the bucket was replaced, the page is empty and ends the pass.
// Cost: each pass returns every key again. A pass over N objects is N / min(most, 1000) requests, each billed as a
// LIST request, and about 400 bytes plus the length of the name for each object. A caller should pause between passes.
// Objects whose names cannot be keys, for example those that other programs have stored, are not in the catalogue.
//
// Errors, in addition to RemoteTier's: an invalid option throws TierError (kRefused) from the constructor. Keys with a
// segment "", "." or "..", which proxies and servers rewrite, and names of more than 1024 bytes are kRefused. All
// redirects are kRefused, so that credentials go only to the endpoint. No proxy is used, whatever the environment
// says. Signatures contain the time; AWS refuses them if this machine's clock is more than 15 minutes off.
//
// Thread safety: as RemoteTier. The process should ignore SIGPIPE (CURLOPT_NOSIGNAL(3)). After a timeout during name
// resolution, libcurl's resolver thread runs on until getaddrinfo(3) returns.
// Sources: the Amazon S3 API Reference (PutObject, ListObjectsV2, Error Responses), the user guide's "Conditional
// writes", and the AWS manual "Signature Version 4". libcurl signs paths and queries as its caller writes them.
class S3Tier final : public RemoteTier {
 public:
  explicit S3Tier(S3Options options);
  ~S3Tier() override;

  std::optional<std::string> get(const std::string& key, std::size_t most_bytes) override;
  PutOutcome put_if_absent(const std::string& key, std::string_view object) override;
  bool remove(const std::string& key) override;

  // S3 cannot expire an object after seconds, so a dead owner would keep its lease.
  bool has_leases() const override { return false; }
  std::optional<std::uint64_t> acquire(const std::string& key, const std::string& owner,
                                       std::chrono::milliseconds ttl) override;
  bool renew(const std::string& key, const std::string& owner,
             std::chrono::milliseconds ttl) override;
  void release(const std::string& key, const std::string& owner) override;
  void wait(const std::string& key, std::chrono::milliseconds timeout) override;

  CataloguePage keys_since(const std::string& position, std::size_t most) override;

 private:
  class Connection;
  using Clock = std::chrono::steady_clock;

  Clock::time_point deadline() const { return Clock::now() + options_.timeout; }
  std::string target_of(const std::string& key) const;
  bool exists(const std::string& key, Clock::time_point deadline);
  [[noreturn]] void refuse_lease() const;

  S3Options options_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace cacheshim::remote
