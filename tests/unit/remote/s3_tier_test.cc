// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/s3_tier.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "common/unique_fd.h"
#include "remote/engines/s3_text.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim::remote {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Kind = TierError::Kind;
constexpr std::size_t kMost = 1 << 20;

struct Failure {
  std::string kind;  // "none" if nothing was thrown
  std::string message;
  std::chrono::milliseconds after;
};

Failure failure_of(const std::function<void()>& action) {
  const auto start = Clock::now();
  const auto after = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  };
  try {
    action();
  } catch (const TierError& error) {
    const std::map<Kind, std::string> names{
        {Kind::kUnavailable, "unavailable"}, {Kind::kFull, "full"}, {Kind::kRefused, "refused"}};
    return {names.at(error.kind()), error.what(), after()};
  }
  return {"none", "", after()};
}

std::string kind_of(const std::function<void()>& action) { return failure_of(action).kind; }

// A socket that listens on a free port of 127.0.0.1.
class Listener {
 public:
  Listener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    const bool is_ready = ::bind(socket_.get(), generic, size) == 0 &&
                          ::listen(socket_.get(), 16) == 0 &&
                          ::getsockname(socket_.get(), generic, &size) == 0;
    if (!is_ready) throw std::runtime_error("cannot listen on 127.0.0.1");
    port_ = ::ntohs(address.sin_port);
  }
  int socket() const { return socket_.get(); }
  int port() const { return port_; }

 private:
  UniqueFd socket_;
  int port_ = 0;
};

// An HTTP server that gives prepared replies, one to each connection. The last reply repeats.
class FakeServer {
 public:
  explicit FakeServer(std::vector<std::string> replies,
                      std::chrono::milliseconds pause_per_byte = 0ms)
      : replies_(std::move(replies)),
        pause_per_byte_(pause_per_byte),
        thread_([this] { serve(); }) {}
  ~FakeServer() {
    is_ending_ = true;
    (void)::shutdown(listener_.socket(), SHUT_RDWR);  // accept4(2) then fails
    thread_.join();
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string endpoint() const { return fmt::format("http://127.0.0.1:{}", listener_.port()); }
  S3Options options(std::chrono::milliseconds timeout = 5s) const {
    return {endpoint(), "us-east-1", "bucket", "some/prefix", "KEYID", "SECRET", "TOKEN", timeout};
  }
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    for (std::size_t count = 0;; ++count) {
      const UniqueFd connection(::accept4(listener_.socket(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection) return;
      read_request(connection.get());
      send_reply(connection.get(), replies_[std::min(count, replies_.size() - 1)]);
    }
  }
  void read_request(int connection) {
    const timeval patience{10, 0};
    (void)::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::string request;
    std::size_t wanted = std::string::npos;  // the size of the head and the body
    while (request.size() < wanted) {
      std::array<char, 4096> buffer{};
      const ssize_t count = ::recv(connection, buffer.data(), buffer.size(), 0);
      if (count <= 0) break;
      request.append(buffer.data(), static_cast<std::size_t>(count));
      const std::size_t head = request.find("\r\n\r\n");
      if (head == request.npos) continue;
      const std::size_t length = request.find("Content-Length: ");
      wanted = head + 4 + (length == request.npos ? 0 : std::stoul(request.substr(length + 16)));
    }
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  void send_reply(int connection, std::string_view reply) const {
    while (!reply.empty() && !is_ending_) {
      const std::size_t size = pause_per_byte_ > 0ms ? 1 : reply.size();
      const ssize_t count = ::send(connection, reply.data(), size, MSG_NOSIGNAL);
      if (count <= 0) return;
      reply.remove_prefix(static_cast<std::size_t>(count));
      std::this_thread::sleep_for(pause_per_byte_);
    }
  }

  Listener listener_;
  std::vector<std::string> replies_;
  std::chrono::milliseconds pause_per_byte_;
  std::atomic<bool> is_ending_{false};
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

std::string http(int status, std::string_view body = "", std::string_view headers = "") {
  return fmt::format("HTTP/1.1 {} Status\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n{}",
                     status, body.size(), headers, body);
}

std::string error_xml(std::string_view code) {
  return fmt::format(
      "<?xml version=\"1.0\"?>\n<Error><Code>{}</Code><Message>Why\nnot</Message></Error>", code);
}

std::string listing_xml(std::string_view content) {
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://x/\">{}</ListBucketResult>",
      content);
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
    const FakeServer server({http(row.status, row.code.empty() ? "" : error_xml(row.code))});
    S3Tier tier(server.options());
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
    const FakeServer server(std::move(replies));
    S3Tier tier(server.options());
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
  const FakeServer server({http(200), http(200), http(404),
                           http(200, listing_xml("<IsTruncated>false</IsTruncated>"))});
  S3Tier tier(server.options());
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
  const FakeServer target({http(200, "stolen")});
  for (const int status : {301, 302, 307, 308}) {
    const FakeServer server(
        {http(status, "", fmt::format("Location: {}/bucket/a\r\n", target.endpoint()))});
    S3Tier tier(server.options());
    EXPECT_EQ(kind_of([&] { (void)tier.get("a", kMost); }), "refused");
    EXPECT_EQ(kind_of([&] { (void)tier.put_if_absent("a", "x"); }), "refused");
    EXPECT_EQ(kind_of([&] { tier.wait("a", 5s); }), "refused");
  }
  EXPECT_TRUE(target.requests().empty());
}

TEST(S3Tier, ProxiesOfTheEnvironmentAreNotUsed) {
  const FakeServer proxy({http(200, "from the proxy")});
  const FakeServer server({http(200, "from the server")});
  (void)::setenv("http_proxy", proxy.endpoint().c_str(), 1);
  S3Tier tier(server.options());
  const auto object = tier.get("a", kMost);
  (void)::unsetenv("http_proxy");
  EXPECT_EQ(object, "from the server");
  EXPECT_TRUE(proxy.requests().empty());
}

TEST(S3Tier, SlowRepliesEndWithTheTimeout) {
  const FakeServer server({http(200, std::string(200, 'x'))}, 50ms);
  S3Tier tier(server.options(2s));
  const Failure failure = failure_of([&] { (void)tier.get("a", kMost); });
  EXPECT_EQ(failure.kind, "unavailable");
  EXPECT_GE(failure.after, 1900ms);
  EXPECT_LE(failure.after, 9s);
}

// Each of the three requests takes half of the timeout.
TEST(S3Tier, TheTimeoutIsForTheWholeCall) {
  const std::string conflict = http(409);
  const FakeServer server({conflict}, 1000ms / static_cast<int>(conflict.size()));
  S3Tier tier(server.options(2s));
  const Failure failure = failure_of([&] { (void)tier.put_if_absent("a", "x"); });
  EXPECT_EQ(failure.kind, "unavailable");
  EXPECT_LE(failure.after, 9s);
}

TEST(S3Tier, BodiesAreLimited) {
  const std::string chunked =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
      "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
  const FakeServer server(
      {http(200, "hello world"), chunked, http(200, "hello world"), chunked,
       "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx",
       http(503, error_xml("SlowDown") + std::string(1 << 20, ' ')),
       "HTTP/1.1 200 OK\r\nX-Long: " + std::string(70000, 'x') + "\r\nContent-Length: 0\r\n\r\n"});
  S3Tier tier(server.options());
  EXPECT_EQ(tier.get("a", 11), "hello world");
  EXPECT_EQ(tier.get("a", 11), "hello world");
  EXPECT_EQ(kind_of([&] { (void)tier.get("a", 10); }), "refused");
  EXPECT_EQ(kind_of([&] { (void)tier.get("a", 10); }), "refused");
  EXPECT_EQ(kind_of([&] { (void)tier.get("a", kMost); }), "refused");
  EXPECT_EQ(kind_of([&] { (void)tier.get("a", kMost); }), "unavailable");
  EXPECT_EQ(kind_of([&] { (void)tier.get("a", kMost); }), "unavailable");
}

TEST(S3Tier, TruncatedBodiesAreErrors) {
  const FakeServer server({"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                           "HTTP/1.1 200 OK\r\n\r\nhello", "hello", "HTTP/1.1 200 OK\r\nContent-Le",
                           "", http(200, "whole")});
  S3Tier tier(server.options());
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(kind_of([&] { (void)tier.get("a", kMost); }), "unavailable") << i;
  EXPECT_EQ(tier.get("a", kMost), "whole");
}

TEST(S3Tier, ReplyFromAnotherKindOfServerIsNoMiss) {
  const FakeServer server({http(404, "<html>not found</html>"), http(404, error_xml("NoSuchKey"))});
  S3Tier tier(server.options());
  EXPECT_EQ(kind_of([&] { (void)tier.get("a", kMost); }), "refused");
  EXPECT_EQ(tier.get("a", kMost), std::nullopt);
}

TEST(S3Tier, MalformedListingsAreErrors) {
  const auto key = [](std::string_view name) {
    return listing_xml(
        fmt::format("<IsTruncated>false</IsTruncated><Contents><Key>{}</Key></Contents>", name));
  };
  const FakeServer server(
      {http(200, "<html>login</html>"), http(200), http(200, key("other/prefix/a")),
       http(200, listing_xml("<IsTruncated>true</IsTruncated><NextContinuationToken>t"
                             "</NextContinuationToken>")),
       http(200, std::string(9 << 20, ' ')), http(200, key("some/prefix/a"))});
  S3Tier tier(server.options());
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(kind_of([&] { (void)tier.keys_since("t", 10); }), "unavailable") << i;
  EXPECT_EQ(kind_of([&] { (void)tier.keys_since("", 10); }), "refused");
  EXPECT_EQ(tier.keys_since("", 10).keys, std::vector<std::string>{"a"});
}

TEST(S3Tier, NamesThatCannotBeKeysAreNotInTheCatalogue) {
  std::string names;
  for (const char* const name : {"dir/", "/x", "a/../b", "%0A", "%FF", "good"})
    names += fmt::format("<Contents><Key>some/prefix/{}</Key></Contents>", name);
  const FakeServer server({http(
      200,
      listing_xml("<IsTruncated>false</IsTruncated><EncodingType>url</EncodingType>" + names))});
  S3Tier tier(server.options());
  EXPECT_EQ(tier.keys_since("", 10).keys, std::vector<std::string>{"good"});
}

TEST(S3Tier, RejectedCursorEndsThePass) {
  const FakeServer server({http(400, error_xml("InvalidArgument"))});
  S3Tier tier(server.options());
  const CataloguePage page = tier.keys_since("stale", 10);
  EXPECT_TRUE(page.keys.empty() && page.is_last && page.position.empty());
  EXPECT_EQ(kind_of([&] { (void)tier.keys_since("", 10); }), "refused");
}

TEST(S3Tier, InvalidKeysAreRefusedWithoutARequest) {
  const FakeServer server({http(200)});
  S3Tier tier(server.options());
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

TEST(S3Text, ListingsAreDecoded) {
  const auto listing = parse_s3_listing(listing_xml(
      "<Name/><Contents><Key>a%2Bb+c&amp;%26&#x41;&#233;</Key><Owner><ID>x</ID></Owner></Contents>\n<Contents>\n<Key>d"
      "</Key></Contents><IsTruncated>true</IsTruncated><NextContinuationToken>a+&lt;%41</NextContinuationToken>"
      "<EncodingType>url</EncodingType><CommonPrefixes><Prefix>p</Prefix></CommonPrefixes>"));
  ASSERT_TRUE(listing);
  EXPECT_EQ(listing->names, (std::vector<std::string>{"a+b c&&A\xC3\xA9", "d"}));
  EXPECT_EQ(listing->next, "a+<%41");
  const auto plain = parse_s3_listing(
      listing_xml("<IsTruncated>false</IsTruncated><Contents><Key>a+%41</Key></Contents>"));
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->names, std::vector<std::string>{"a+%41"});
}

TEST(S3Text, MalformedListingsAreRejected) {
  const std::string end = "<IsTruncated>false</IsTruncated>";
  ASSERT_TRUE(parse_s3_listing(listing_xml(end)));
  for (const std::string& content :
       {std::string(),
        end + end,
        std::string("<IsTruncated>yes</IsTruncated>"),
        std::string("<IsTruncated>true</IsTruncated>"),
        end + "<a>",
        end + "</a>",
        end + "<a></b>",
        end + "<a><b></a></b>",
        end + "<!-- c -->",
        end + "<![CDATA[x]]>",
        end + "<?pi x?>",
        end + "text",
        end + "<a>x<b/></a>",
        end + "<a>&unknown;</a>",
        end + "<a>&amp</a>",
        end + "<a>&#x110000;</a>",
        end + "<a>&#;</a>",
        end + "<a>&#-1;</a>",
        end + "< a></ a>",
        end + "<>" + "</>",
        end + "<EncodingType>url</EncodingType><Contents><Key>%4</Key></Contents>",
        end + "<EncodingType>url</EncodingType><Contents><Key>%zz</Key></Contents>",
        end + "<a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a>"})
    EXPECT_FALSE(parse_s3_listing(listing_xml(content))) << content;
  for (const std::string& xml :
       {std::string(), std::string("</>"), std::string("<"), std::string("<?xml "),
        listing_xml(end) + "<a/>", listing_xml(end) + "x", "x" + listing_xml(end),
        "<!DOCTYPE a [<!ENTITY b \"c\">]>" + listing_xml(end), "<Error>" + end + "</Error>"})
    EXPECT_FALSE(parse_s3_listing(xml)) << xml;
}

// Returns the path of the program `weed` (SeaweedFS), or "" if this machine does not have it.
std::string weed_program() {
  if (const char* const chosen = ::getenv("CACHESHIM_WEED"); chosen != nullptr) return chosen;
  const char* const path = ::getenv("PATH");
  std::istringstream directories(path == nullptr ? "" : path);
  for (std::string directory; std::getline(directories, directory, ':');) {
    if (::access((directory + "/weed").c_str(), X_OK) == 0) return directory + "/weed";
  }
  return "";
}

// A real S3 server, which stores its data in a temporary directory. The kernel kills it when this process dies.
class Weed {
 public:
  Weed() {
    scratch_.write("s3.json", R"({"identities": [
      {"name": "admin", "credentials": [{"accessKey": "A", "secretKey": "S"}], "actions": ["Admin"]},
      {"name": "reader", "credentials": [{"accessKey": "R", "secretKey": "S"}], "actions": ["Read", "List"]}]})");
    std::vector<Listener> listeners(8);  // all at the same time, so that the ports differ
    std::ranges::transform(listeners, std::back_inserter(ports_), &Listener::port);
  }
  ~Weed() {
    kill();
    for (const char* const role :
         {"master-grpc", "volume-grpc", "filer", "filer-grpc", "s3", "s3-grpc"}) {
      for (const int port : ports_)  // weed leaves these sockets when it is killed
        (void)::unlink(fmt::format("/tmp/seaweedfs-{}-{}.sock", role, port).c_str());
    }
  }
  Weed(const Weed&) = delete;
  Weed& operator=(const Weed&) = delete;

  // Starts the server and waits until it stores an object, which creates the bucket.
  bool start() {
    const std::vector<std::string> words = command();
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const std::string log = scratch_ / "log";
    pid_ = ::fork();
    if (pid_ == 0) {
      (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      (void)::dup2(out, STDOUT_FILENO);
      (void)::dup2(out, STDERR_FILENO);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    for (const auto end = Clock::now() + 60s; Clock::now() < end;
         std::this_thread::sleep_for(100ms)) {
      S3Tier tier(options("ready"));
      const std::string key = fmt::format("at/{}", Clock::now().time_since_epoch().count());
      if (kind_of([&] { (void)tier.put_if_absent(key, "x"); }) == "none") return true;
      if (::waitpid(pid_, nullptr, WNOHANG) != pid_) continue;
      pid_ = -1;
      return false;
    }
    return false;
  }
  void stop() const {
    (void)::kill(pid_, SIGSTOP);
    (void)::waitpid(pid_, nullptr, WUNTRACED);  // until all its threads have stopped
  }
  void resume() const { (void)::kill(pid_, SIGCONT); }
  void kill() {
    if (pid_ <= 0) return;
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  std::string log() const { return scratch_.read("log"); }
  S3Options options(const std::string& prefix, std::chrono::milliseconds timeout = 10s) const {
    return {fmt::format("http://127.0.0.1:{}", ports_[0]),
            "us-east-1",
            "cacheshim",
            prefix,
            "A",
            "S",
            "",
            timeout};
  }

 private:
  std::vector<std::string> command() const {
    std::vector<std::string> words{weed_program(),
                                   "-logtostderr=true",
                                   "server",
                                   "-ip=127.0.0.1",
                                   "-ip.bind=127.0.0.1",
                                   "-dir=" + scratch_.path(),
                                   "-filer",
                                   "-s3",
                                   "-s3.config=" + (scratch_ / "s3.json"),
                                   "-s3.port.iceberg=0",
                                   "-s3.port.lance=0",
                                   "-volume.max=60",
                                   "-master.volumeSizeLimitMB=64",
                                   "-master.telemetry=false",
                                   "-master.electionTimeout=1s",
                                   "-master.heartbeatInterval=100ms"};
    constexpr std::array kOptions{"s3.port",          "s3.port.grpc",    "master.port",
                                  "master.port.grpc", "filer.port",      "filer.port.grpc",
                                  "volume.port",      "volume.port.grpc"};
    for (std::size_t i = 0; i < kOptions.size(); ++i)
      words.push_back(fmt::format("-{}={}", kOptions[i], ports_[i]));
    return words;
  }

  Scratch scratch_;
  std::vector<int> ports_;
  pid_t pid_ = -1;
};

// One server for all tests, because it takes seconds to start. Each test has its own prefix.
class S3Server : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (weed_program().empty()) return;
    weed_ = std::make_unique<Weed>();
    is_started_ = weed_->start();
  }
  static void TearDownTestSuite() { weed_.reset(); }
  void SetUp() override {
    if (weed_ == nullptr)
      GTEST_SKIP() << "SeaweedFS's program weed is neither in PATH nor named by CACHESHIM_WEED";
    ASSERT_TRUE(is_started_) << weed_->log();
  }
  S3Options options(std::chrono::milliseconds timeout = 10s) const {
    return weed_->options(::testing::UnitTest::GetInstance()->current_test_info()->name(), timeout);
  }

  static inline std::unique_ptr<Weed> weed_;
  static inline bool is_started_ = false;
};

// Runs the action in `count` threads, each with its number.
void in_threads(int count, const std::function<void(int)>& action) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&action, i] { action(i); });
}

TEST_F(S3Server, ObjectsAreReturnedUnchanged) {
  S3Tier tier(options());
  std::string every_byte;
  for (int i = 0; i < (3 << 20); ++i) every_byte += static_cast<char>(i * 31 >> 3);
  for (const std::string& object : {std::string(), std::string("\0\r\n\xFF", 4), every_byte}) {
    const std::string key = fmt::format("size/{}", object.size());
    EXPECT_EQ(tier.get(key, object.size()), std::nullopt);
    EXPECT_EQ(tier.put_if_absent(key, object), PutOutcome::kStored);
    EXPECT_TRUE(tier.get(key, object.size()) == object) << key;
    EXPECT_EQ(tier.put_if_absent(key, "other"), PutOutcome::kExists);
    EXPECT_TRUE(tier.get(key, object.size()) == object) << key;
    if (object.empty()) continue;
    EXPECT_EQ(kind_of([&] { (void)tier.get(key, object.size() - 1); }), "refused");
  }
}

TEST_F(S3Server, RemovedObjectsAreAbsent) {
  S3Tier tier(options());
  EXPECT_FALSE(tier.remove("a/b"));
  EXPECT_EQ(tier.put_if_absent("a/b", "one"), PutOutcome::kStored);
  EXPECT_TRUE(tier.remove("a/b"));
  EXPECT_FALSE(tier.remove("a/b"));
  EXPECT_EQ(tier.get("a/b", kMost), std::nullopt);
  EXPECT_EQ(tier.put_if_absent("a/b", "two"), PutOutcome::kStored);
  EXPECT_EQ(tier.get("a/b", kMost), "two");
}

void expect_one_winner_of_eight(const std::string& key, const S3Options& options) {
  constexpr int kWriters = 8;
  std::barrier barrier(kWriters);
  std::array<std::string, kWriters> read;
  std::atomic<int> stored{0};
  std::string winner;
  in_threads(kWriters, [&](int i) {
    S3Tier tier(options);
    const std::string object(50000, static_cast<char>('a' + i));
    barrier.arrive_and_wait();
    if (tier.put_if_absent(key, object) == PutOutcome::kStored && ++stored == 1) winner = object;
    read[static_cast<std::size_t>(i)] = tier.get(key, kMost).value_or("absent");
  });
  EXPECT_EQ(stored, 1);
  for (const std::string& object : read) EXPECT_TRUE(object == winner) << key;
}

// SeaweedFS 4.48 lets a writer that meets another one wait for 1 s, so four keys are written at the same time.
TEST_F(S3Server, OneOfEightWritersStoresTheObject) {
  in_threads(4, [&](int group) {
    for (int round = 0; round < 5; ++round)
      expect_one_winner_of_eight(fmt::format("group {}/round {}", group, round), options(30s));
  });
}

TEST_F(S3Server, KeysMayContainAllCharacters) {
  S3Tier tier(options());
  const std::set<std::string> keys{"a b/c+d%2B/e", "\xC3\xA9/\xE2\x82\xAC\xF0\x9F\x98\x80",
                                   "<&>\"'/;=@:,$!*()[]{}|^`~?#", "-._~/...",
                                   std::string(200, 'x') + "/" + std::string(200, 'y')};
  for (const std::string& key : keys) {
    EXPECT_EQ(tier.put_if_absent(key, key), PutOutcome::kStored);
    EXPECT_EQ(tier.get(key, kMost), key);
  }
  const CataloguePage page = tier.keys_since("", 1000);
  EXPECT_EQ(std::set<std::string>(page.keys.begin(), page.keys.end()), keys);
  EXPECT_TRUE(page.is_last);
}

// Returns the keys of one pass over the catalogue.
std::set<std::string> pass_over(S3Tier& tier, std::size_t most) {
  std::set<std::string> keys;
  CataloguePage page;
  do {
    page = tier.keys_since(page.position, most);
    EXPECT_LE(page.keys.size(), most);
    keys.insert(page.keys.begin(), page.keys.end());
  } while (!page.is_last);
  EXPECT_EQ(page.position, "");
  return keys;
}

TEST_F(S3Server, CatalogueHasAllKeysAlsoWithConcurrentWriters) {
  S3Tier tier(options());
  EXPECT_TRUE(pass_over(tier, 7).empty());
  std::set<std::string> keys;
  for (int i = 0; i < 40; ++i) keys.insert(fmt::format("family {}/entry+{}", i % 3, i));
  for (const std::string& key : keys) (void)tier.put_if_absent(key, "x");
  EXPECT_EQ(pass_over(tier, 7), keys);
  EXPECT_EQ(pass_over(tier, 1), keys);

  std::atomic<int> writers{3};
  std::jthread reader([&] {
    S3Tier other(options());
    while (writers > 0) EXPECT_TRUE(std::ranges::includes(pass_over(other, 7), keys));
  });
  in_threads(3, [&](int i) {
    S3Tier writer(options());
    for (int n = 0; n < 40; ++n)
      (void)writer.put_if_absent(fmt::format("family {}/late {}", i, n), "x");
    --writers;
  });
  reader.join();
  for (int i = 0; i < 120; ++i) keys.insert(fmt::format("family {}/late {}", i / 40, i % 40));
  EXPECT_EQ(pass_over(tier, 7), keys);
}

TEST_F(S3Server, RejectedCursorsDoNotStopTheCatalogue) {
  S3Tier tier(options());
  (void)tier.put_if_absent("a", "x");
  CataloguePage page = tier.keys_since("\x01 no cursor", 10);
  while (!page.is_last) page = tier.keys_since(page.position, 10);
  EXPECT_EQ(tier.keys_since(page.position, 10).keys, std::vector<std::string>{"a"});
}

TEST_F(S3Server, WaitEndsWhenTheObjectIsStoredOrAtTheTimeout) {
  S3Tier tier(options());
  const auto start = Clock::now();
  tier.wait("a/b", 700ms);
  EXPECT_GE(Clock::now() - start, 700ms);
  EXPECT_LT(Clock::now() - start, 8s);

  std::atomic<bool> is_stored{false};
  Clock::time_point stored_at;
  std::jthread writer([&] {
    S3Tier other(options());
    std::this_thread::sleep_for(1s);
    is_stored = true;
    (void)other.put_if_absent("a/b", "x");
    stored_at = Clock::now();
  });
  tier.wait("a/b", 30s);
  const auto woken_at = Clock::now();
  EXPECT_TRUE(is_stored);
  writer.join();
  EXPECT_LT(woken_at - stored_at, 9s);
  EXPECT_EQ(tier.get("a/b", kMost), "x");
}

TEST_F(S3Server, RefusedRequestsAreNotUnavailable) {
  const auto kinds_with = [&](const std::function<void(S3Options&)>& change) {
    S3Options changed = options();
    change(changed);
    S3Tier tier(changed);
    return kind_of([&] { (void)tier.get("a", kMost); }) + " " +
           kind_of([&] { (void)tier.put_if_absent("a", "x"); });
  };
  EXPECT_EQ(kinds_with([](S3Options& o) { o.secret_key = "wrong"; }), "refused refused");
  EXPECT_EQ(kinds_with([](S3Options& o) { o.access_key = "unknown"; }), "refused refused");
  EXPECT_EQ(kinds_with([](S3Options& o) { o.access_key = "R"; }), "none refused");
  EXPECT_EQ(kinds_with([](S3Options& o) {
              o.bucket = "absent";
              o.access_key = "R";
            }),
            "refused refused");
}

TEST_F(S3Server, StoppedServerIsUnavailableUntilItContinues) {
  S3Tier tier(options(2s));
  EXPECT_EQ(tier.put_if_absent("a", "x"), PutOutcome::kStored);
  weed_->stop();
  const std::vector<std::function<void(S3Tier&)>> calls{
      [](S3Tier& t) { (void)t.get("a", kMost); },
      [](S3Tier& t) { (void)t.put_if_absent("b", std::string(2 << 20, 'x')); },
      [](S3Tier& t) { (void)t.remove("other"); }, [](S3Tier& t) { (void)t.keys_since("", 10); },
      [&tier](S3Tier&) { (void)tier.get("a", kMost); }};  // on the open connection
  std::vector<Failure> failures(calls.size());
  in_threads(static_cast<int>(calls.size()), [&](int i) {
    S3Tier other(options(2s));
    const auto at = static_cast<std::size_t>(i);
    failures[at] = failure_of([&] { calls[at](other); });
  });
  weed_->resume();
  for (const Failure& failure : failures) {
    EXPECT_EQ(failure.kind, "unavailable");
    EXPECT_GE(failure.after, 1900ms);
    EXPECT_LE(failure.after, 9s) << failure.message;
  }
  EXPECT_EQ(tier.get("a", kMost), "x");
}

TEST_F(S3Server, KilledServerIsUnavailableUntilItRestarts) {
  S3Tier tier(options(2s));
  EXPECT_EQ(tier.put_if_absent("a", "x"), PutOutcome::kStored);
  weed_->kill();
  const Failure failure = failure_of([&] { (void)tier.get("a", kMost); });
  EXPECT_EQ(failure.kind, "unavailable");
  EXPECT_LE(failure.after, 9s);
  EXPECT_EQ(kind_of([&] { (void)tier.put_if_absent("b", "x"); }), "unavailable");
  ASSERT_TRUE(weed_->start()) << weed_->log();
  EXPECT_EQ(tier.get("a", kMost), "x");
}

}  // namespace
}  // namespace cacheshim::remote
