// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/s3_tier.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/support/fake_http_server.h"
#include "tests/unit/support/listener.h"
#include "tests/unit/support/s3_replies.h"
#include "tests/unit/support/tier_failure.h"

// S3Tier with prepared replies; s3_server_test.cc has the tests with a real server.
namespace cacheshim::remote {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t kMost = 1 << 20;

S3Options options_for(const FakeHttpServer& server, std::chrono::milliseconds timeout = 5s) {
  return {server.endpoint(), "us-east-1", "bucket", "some/prefix",
          "KEYID",           "SECRET",    "TOKEN",  timeout};
}

TEST(S3Tier, FailuresHaveTheKindOfTheStatusAndTheCode) {
  struct Row {
    int status;
    std::string code;
    std::string kind;
  };
  for (const Row& row : std::vector<Row>{{401, "", "refused"},
                                         {403, "AccessDenied", "refused"},
                                         {404, "NoSuchBucket", "refused"},
                                         {400, "InvalidRequest", "refused"},
                                         {501, "NotImplemented", "refused"},
                                         {206, "", "refused"},
                                         {507, "", "full"},
                                         {500, "XMinioStorageFull", "full"},
                                         {503, "InsufficientStorage", "full"},
                                         {403, "QuotaExceeded", "full"},
                                         {500, "InternalError", "unavailable"},
                                         {503, "SlowDown", "unavailable"},
                                         {429, "", "unavailable"},
                                         {400, "RequestTimeout", "unavailable"}}) {
    const FakeHttpServer server({http(row.status, row.code.empty() ? "" : error_xml(row.code))});
    S3Tier tier(options_for(server));
    const Failure failure = failure_of([&] { (void)tier.get("a/b", kMost); });
    EXPECT_EQ(failure.kind, row.kind) << failure.message;
    EXPECT_EQ(kind_of([&] { (void)tier.put_if_absent("a/b", "x"); }), row.kind);
    EXPECT_EQ(kind_of([&] { (void)tier.keys_since("", 10); }), row.kind);
    EXPECT_NE(failure.message.find(fmt::format(
                  "cannot read 'a/b' in the bucket 'bucket' at {}: the server answered {}",
                  server.endpoint(), row.status)),
              std::string::npos)
        << failure.message;
    EXPECT_EQ(failure.message.find('\n'), std::string::npos);
  }
}

TEST(S3Tier, ConflictsAreRetriedOnceAndThenChecked) {
  const auto outcome_after = [](std::vector<std::string> replies, std::size_t requests) {
    const FakeHttpServer server(std::move(replies));
    S3Tier tier(options_for(server));
    std::string outcome;
    const std::string kind = kind_of([&] {
      outcome = tier.put_if_absent("a/b", "x") == PutOutcome::kStored ? "stored" : "exists";
    });
    EXPECT_EQ(server.requests().size(), requests);
    return outcome.empty() ? kind : outcome;
  };
  const std::string conflict = http(409, error_xml("ConditionalRequestConflict"));
  EXPECT_EQ(outcome_after({http(200)}, 1), "stored");
  EXPECT_EQ(outcome_after({http(412)}, 1), "exists");
  EXPECT_EQ(outcome_after({conflict, http(200)}, 2), "stored");
  EXPECT_EQ(outcome_after({conflict, http(412)}, 2), "exists");
  EXPECT_EQ(outcome_after({conflict, conflict, http(200)}, 3), "exists");
  EXPECT_EQ(outcome_after({conflict, conflict, http(404)}, 3), "unavailable");
}

TEST(S3Tier, RequestsAreConditionalAndSigned) {
  const FakeHttpServer server({http(200), http(200), http(404),
                               http(200, listing_xml("<IsTruncated>false</IsTruncated>"))});
  S3Tier tier(options_for(server));
  (void)tier.put_if_absent("a b/c+d/\xC3\xA9", "hello");
  (void)tier.get("x", kMost);
  EXPECT_FALSE(tier.get("x", kMost));
  (void)tier.keys_since("to/k&n", 7);
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_TRUE(requests[0].starts_with("PUT /bucket/some/prefix/a%20b/c%2Bd/%C3%A9 HTTP/1.1\r\n"))
      << requests[0];
  EXPECT_TRUE(requests[0].ends_with("\r\n\r\nhello"));
  for (const char* const part :
       {"\r\nIf-None-Match: *\r\n", "\r\nX-Amz-Security-Token: TOKEN\r\n", "Credential=KEYID/",
        "/us-east-1/s3/aws4_request,",
        "SignedHeaders=content-type;host;if-none-match;x-amz-content-sha256;x-amz-date;"
        "x-amz-security-token,",
        // the SHA-256 of "hello"
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"})
    EXPECT_NE(requests[0].find(part), std::string::npos) << part << " is not in " << requests[0];
  EXPECT_EQ(requests[1].find("If-None-Match"), std::string::npos);
  EXPECT_TRUE(requests[3].starts_with(
      "GET /bucket?continuation-token=to%2Fk%26n&encoding-type=url&list-type=2&max-keys=7&"
      "prefix=some%2Fprefix%2F HTTP/1.1\r\n"))
      << requests[3];
  for (const std::string& request : requests) EXPECT_EQ(request.find("SECRET"), std::string::npos);
}

TEST(S3Tier, RedirectsAreRefused) {
  const FakeHttpServer target({http(200, "stolen")});
  for (const int status : {301, 302, 307, 308}) {
    const FakeHttpServer server(
        {http(status, "", fmt::format("Location: {}/bucket/a\r\n", target.endpoint()))});
    S3Tier tier(options_for(server));
    EXPECT_EQ(kind_of([&] { (void)tier.get("a", kMost); }), "refused");
    EXPECT_EQ(kind_of([&] { (void)tier.put_if_absent("a", "x"); }), "refused");
    EXPECT_EQ(kind_of([&] { tier.wait("a", 5s); }), "refused");
  }
  EXPECT_TRUE(target.requests().empty());
}

TEST(S3Tier, ProxiesOfTheEnvironmentAreNotUsed) {
  const FakeHttpServer proxy({http(200, "from the proxy")});
  const FakeHttpServer server({http(200, "from the server")});
  (void)::setenv("http_proxy", proxy.endpoint().c_str(), 1);
  S3Tier tier(options_for(server));
  const auto object = tier.get("a", kMost);
  (void)::unsetenv("http_proxy");
  EXPECT_EQ(object, "from the server");
  EXPECT_TRUE(proxy.requests().empty());
}

TEST(S3Tier, SlowRepliesEndWithTheTimeout) {
  const FakeHttpServer server({http(200, std::string(200, 'x'))}, 50ms);
  S3Tier tier(options_for(server, 2s));
  const Failure failure = failure_of([&] { (void)tier.get("a", kMost); });
  EXPECT_EQ(failure.kind, "unavailable");
  EXPECT_GE(failure.after, 1900ms);
  EXPECT_LE(failure.after, 9s);
}

// Each of the three requests takes half of the timeout.
TEST(S3Tier, TheTimeoutIsForTheWholeCall) {
  const std::string conflict = http(409);
  const FakeHttpServer server({conflict}, 1000ms / static_cast<int>(conflict.size()));
  S3Tier tier(options_for(server, 2s));
  const Failure failure = failure_of([&] { (void)tier.put_if_absent("a", "x"); });
  EXPECT_EQ(failure.kind, "unavailable");
  EXPECT_LE(failure.after, 9s);
}

TEST(S3Tier, BodiesAreLimited) {
  const std::string chunked =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
      "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
  const FakeHttpServer server(
      {http(200, "hello world"), chunked, http(200, "hello world"), chunked,
       "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx",
       http(503, error_xml("SlowDown") + std::string(1 << 20, ' ')),
       "HTTP/1.1 200 OK\r\nX-Long: " + std::string(70000, 'x') + "\r\nContent-Length: 0\r\n\r\n"});
  S3Tier tier(options_for(server));
  EXPECT_EQ(tier.get("a", 11), "hello world");
  EXPECT_EQ(tier.get("a", 11), "hello world");
  EXPECT_EQ(kind_of([&] { (void)tier.get("a", 10); }), "refused");
  EXPECT_EQ(kind_of([&] { (void)tier.get("a", 10); }), "refused");
  EXPECT_EQ(kind_of([&] { (void)tier.get("a", kMost); }), "refused");
  EXPECT_EQ(kind_of([&] { (void)tier.get("a", kMost); }), "unavailable");
  EXPECT_EQ(kind_of([&] { (void)tier.get("a", kMost); }), "unavailable");
}

TEST(S3Tier, TruncatedBodiesAreErrors) {
  const FakeHttpServer server(
      {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
       "HTTP/1.1 200 OK\r\n\r\nhello", "hello", "HTTP/1.1 200 OK\r\nContent-Le", "",
       http(200, "whole")});
  S3Tier tier(options_for(server));
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(kind_of([&] { (void)tier.get("a", kMost); }), "unavailable") << i;
  EXPECT_EQ(tier.get("a", kMost), "whole");
}

TEST(S3Tier, ReplyFromAnotherKindOfServerIsNoMiss) {
  const FakeHttpServer server(
      {http(404, "<html>not found</html>"), http(404, error_xml("NoSuchKey"))});
  S3Tier tier(options_for(server));
  EXPECT_EQ(kind_of([&] { (void)tier.get("a", kMost); }), "refused");
  EXPECT_EQ(tier.get("a", kMost), std::nullopt);
}

TEST(S3Tier, MalformedListingsAreErrors) {
  const auto key = [](std::string_view name) {
    return listing_xml(
        fmt::format("<IsTruncated>false</IsTruncated><Contents><Key>{}</Key></Contents>", name));
  };
  const FakeHttpServer server(
      {http(200, "<html>login</html>"), http(200), http(200, key("other/prefix/a")),
       http(200, listing_xml("<IsTruncated>true</IsTruncated><NextContinuationToken>t"
                             "</NextContinuationToken>")),
       http(200, std::string(9 << 20, ' ')), http(200, key("some/prefix/a"))});
  S3Tier tier(options_for(server));
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(kind_of([&] { (void)tier.keys_since("t", 10); }), "unavailable") << i;
  EXPECT_EQ(kind_of([&] { (void)tier.keys_since("", 10); }), "refused");
  EXPECT_EQ(tier.keys_since("", 10).keys, std::vector<std::string>{"a"});
}

TEST(S3Tier, NamesThatCannotBeKeysAreNotInTheCatalogue) {
  std::string names;
  for (const char* const name : {"dir/", "/x", "a/../b", "%0A", "%FF", "good"})
    names += fmt::format("<Contents><Key>some/prefix/{}</Key></Contents>", name);
  const FakeHttpServer server({http(
      200,
      listing_xml("<IsTruncated>false</IsTruncated><EncodingType>url</EncodingType>" + names))});
  S3Tier tier(options_for(server));
  EXPECT_EQ(tier.keys_since("", 10).keys, std::vector<std::string>{"good"});
}

TEST(S3Tier, RejectedCursorEndsThePass) {
  const FakeHttpServer server({http(400, error_xml("InvalidArgument"))});
  S3Tier tier(options_for(server));
  const CataloguePage page = tier.keys_since("stale", 10);
  EXPECT_TRUE(page.keys.empty() && page.is_last && page.position.empty());
  EXPECT_EQ(kind_of([&] { (void)tier.keys_since("", 10); }), "refused");
}

TEST(S3Tier, InvalidKeysAreRefusedWithoutARequest) {
  const FakeHttpServer server({http(200)});
  S3Tier tier(options_for(server));
  for (const std::string& key :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"),
        std::string("a/../../other/b"), std::string("./a"), std::string("a\nb"),
        std::string("a\xFF"), std::string(1013, 'x')}) {
    EXPECT_EQ(kind_of([&] { (void)tier.get(key, kMost); }), "refused") << key;
    EXPECT_EQ(kind_of([&] { (void)tier.put_if_absent(key, "x"); }), "refused") << key;
  }
  EXPECT_TRUE(server.requests().empty());
  EXPECT_EQ(kind_of([&] { (void)tier.get(std::string(1012, 'x'), kMost); }), "none");
}

TEST(S3Tier, InvalidOptionsAreRefused) {
  const S3Options good{"http://h:1/", "us-east-1", "bucket", "p/", "A", "S", "", 1s};
  const auto kind_with = [&](const std::function<void(S3Options&)>& change) {
    S3Options options = good;
    change(options);
    return kind_of([&] { S3Tier tier(options); });
  };
  EXPECT_EQ(kind_with([](S3Options&) {}), "none");
  EXPECT_EQ(kind_with([](S3Options& o) { o.endpoint = ""; }), "none");
  for (const char* const endpoint :
       {"h:1", "ftp://h", "http://", "http://u:p@h", "http://h/path", "http://h?x", "file:///x"})
    EXPECT_EQ(kind_with([&](S3Options& o) { o.endpoint = endpoint; }), "refused") << endpoint;
  for (const char* const region : {"", "a:b", "a/b"})
    EXPECT_EQ(kind_with([&](S3Options& o) { o.region = region; }), "refused") << region;
  for (const char* const bucket : {"", "a/b", "a..b", "a?b"})
    EXPECT_EQ(kind_with([&](S3Options& o) { o.bucket = bucket; }), "refused") << bucket;
  EXPECT_EQ(kind_with([](S3Options& o) { o.prefix = "a/../b"; }), "refused");
  EXPECT_EQ(kind_with([](S3Options& o) { o.access_key = ""; }), "refused");
  EXPECT_EQ(kind_with([](S3Options& o) { o.secret_key = ""; }), "refused");
  EXPECT_EQ(kind_with([](S3Options& o) { o.session_token = "a\r\nX-Injected: b"; }), "refused");
  EXPECT_EQ(kind_with([](S3Options& o) { o.timeout = 0ms; }), "refused");
}

TEST(S3Tier, NoServerIsUnavailable) {
  const int port = Listener().port();
  S3Tier tier({fmt::format("http://127.0.0.1:{}", port), "r", "bucket", "", "A", "S", "", 1s});
  const Failure failure = failure_of([&] { (void)tier.get("a", kMost); });
  EXPECT_EQ(failure.kind, "unavailable") << failure.message;
  EXPECT_LE(failure.after, 6s);
}

TEST(S3Tier, LeasesAreRefused) {
  S3Tier tier({"http://127.0.0.1:1", "r", "bucket", "", "A", "S", "", 1s});
  EXPECT_FALSE(tier.has_leases());
  EXPECT_EQ(kind_of([&] { (void)tier.acquire("a", "me", 1s); }), "refused");
  EXPECT_EQ(kind_of([&] { (void)tier.renew("a", "me", 1s); }), "refused");
  EXPECT_EQ(kind_of([&] { tier.release("a", "me"); }), "refused");
}

}  // namespace
}  // namespace cacheshim::remote
