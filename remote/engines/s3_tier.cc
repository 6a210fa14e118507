// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/s3_tier.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <new>
#include <thread>
#include <utility>

#include "common/printable_text.h"
#include "remote/engines/s3_text.h"

namespace cacheshim::remote {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Kind = TierError::Kind;

// Bounds of what the network may send. A page of 1000 keys, each of 1024 bytes that are all percent-encoded, is 3.5 MB.
constexpr std::size_t kMostPageBytes = 8 << 20;
constexpr std::size_t kMostErrorBytes = 64 << 10;
constexpr std::size_t kMostHeaderBytes = 64 << 10;
constexpr std::size_t kMostCodeBytes = 64;
constexpr std::size_t kMostMessageBytes = 200;

constexpr std::size_t kMostKeysOfPage = 1000;
constexpr std::chrono::milliseconds kLongestTimeout = 1h;
constexpr std::chrono::milliseconds kLongestS3Wait = 24h;
constexpr std::chrono::milliseconds kFirstS3Pause = 100ms;
constexpr std::chrono::milliseconds kLongestPause = 1s;

bool consists_of(std::string_view text, std::string_view others) {
  return std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           others.find(c) != others.npos;
  });
}

struct Request {
  std::string action;  // for errors, for example "read 'KEY'"
  std::string method;
  std::string target;  // the path and the query, percent-encoded
  Clock::time_point deadline;
  std::size_t most_bytes = kMostErrorBytes;  // of the body of a reply of status 200
  std::string_view body = {};
};

struct HttpReply {
  long status = 0;
  std::string body;
  std::string code;  // of the error, for example "NoSuchKey"; "" if the reply contains none
  std::string message;
};

// Sources: "Error Responses" of the Amazon S3 API Reference; MinIO's and Ceph's codes for a full disk and a full quota.
Kind kind_of(const HttpReply& reply) {
  constexpr std::array<std::string_view, 3> kFullCodes{"XMinioStorageFull", "InsufficientStorage",
                                                       "QuotaExceeded"};
  const long status = reply.status;
  if (status == 507 || std::ranges::find(kFullCodes, reply.code) != kFullCodes.end())
    return Kind::kFull;
  if (status == 408 || status == 429 || reply.code == "RequestTimeout") return Kind::kUnavailable;
  if (status == 501) return Kind::kRefused;  // NotImplemented, for example If-None-Match
  return status >= 500 ? Kind::kUnavailable : Kind::kRefused;
}

// The state that send() shares with libcurl's callbacks.
struct Transfer {
  CURL* easy;
  std::size_t most_bytes;
  std::string body = {};
  std::size_t header_bytes = 0;
  bool is_too_long = false;  // the body
};

// CURLOPT_WRITEFUNCTION(3). Stops the transfer if the body is too long. If the reply announces such a length, stores no
// byte of the body.
std::size_t receive_body(char* data, std::size_t /*one*/, std::size_t size, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  long status = 0;
  curl_off_t announced = 0;  // -1: unknown
  (void)curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
  (void)curl_easy_getinfo(transfer.easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &announced);
  const std::size_t most = status == 200 ? transfer.most_bytes : kMostErrorBytes;
  transfer.is_too_long = size > most - transfer.body.size() || std::cmp_greater(announced, most);
  if (transfer.is_too_long) return CURL_WRITEFUNC_ERROR;
  try {
    if (announced > 0) transfer.body.reserve(static_cast<std::size_t>(announced));
    transfer.body.append(data, size);
  } catch (const std::bad_alloc&) {
    return CURL_WRITEFUNC_ERROR;  // an exception must not pass through libcurl
  }
  return size;
}

// CURLOPT_HEADERFUNCTION(3)
std::size_t receive_header(char* /*data*/, std::size_t /*one*/, std::size_t size, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  transfer.header_bytes += size;
  return transfer.header_bytes <= kMostHeaderBytes ? size : CURL_WRITEFUNC_ERROR;
}

// CURLOPT_OPENSOCKETFUNCTION(3). libcurl 7.88 itself does not set the close-on-exec flag.
curl_socket_t open_socket(void* /*context*/, curlsocktype /*purpose*/, curl_sockaddr* address) {
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

struct FreeEasy {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct FreeHeaders {
  void operator()(curl_slist* headers) const { curl_slist_free_all(headers); }
};

CURL* new_easy() {
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);  // once, by one thread
  CURL* const easy = global == CURLE_OK ? curl_easy_init() : nullptr;
  if (easy == nullptr) throw std::bad_alloc();
  return easy;
}

using Headers = std::unique_ptr<curl_slist, FreeHeaders>;

void append(Headers& headers, const std::string& line) {
  curl_slist* const longer = curl_slist_append(headers.get(), line.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  (void)headers.release();  // `longer` is, or contains, the same list
  headers.reset(longer);
}

std::string sha256_hex(std::string_view data) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash{};
  (void)crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(data.data()),
                           data.size());
  std::array<char, 2 * crypto_hash_sha256_BYTES + 1> hex{};
  return sodium_bin2hex(hex.data(), hex.size(), hash.data(), hash.size());
}

std::string aws_endpoint(const std::string& region) {
  return fmt::format("https://s3.{}.amazonaws.com{}", region,
                     region.starts_with("cn-") ? ".cn" : "");
}

bool is_endpoint(std::string_view url) {
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (url.starts_with(scheme))
      return url.size() > scheme.size() && consists_of(url.substr(scheme.size()), "._-:[]");
  }
  return false;
}

// Returns the options with the default endpoint if they have none, and without a '/' at the end of the endpoint and the
// prefix. Throws TierError (kRefused) if an option is invalid.
S3Options checked(S3Options options) {
  const auto check = [](bool is_valid, const std::string& why) {
    if (!is_valid) throw TierError(Kind::kRefused, "cannot use the S3 server: " + why);
  };
  const auto is_secret = [](const std::string& text) {
    return std::ranges::all_of(text, [](char c) { return c > ' ' && c < '\x7f'; });
  };
  const std::string& bucket = options.bucket;
  check(!options.region.empty() && options.region.size() <= 64 && consists_of(options.region, "-"),
        fmt::format("'{}' is not a region", printable(options.region)));
  if (options.endpoint.empty()) options.endpoint = aws_endpoint(options.region);
  if (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  if (options.prefix.ends_with('/')) options.prefix.pop_back();
  check(is_endpoint(options.endpoint),
        fmt::format("the endpoint '{}' is not http[s]://HOST[:PORT]", printable(options.endpoint)));
  check(bucket.size() >= 3 && bucket.size() <= 63 && consists_of(bucket, "-.") &&
            bucket.find("..") == bucket.npos,
        fmt::format("'{}' is not the name of a bucket", printable(bucket)));
  check(options.prefix.empty() || is_s3_key(options.prefix),
        fmt::format("the prefix '{}' is not valid", printable(options.prefix)));
  check(!options.access_key.empty() && !options.secret_key.empty(),
        "the access key or the secret key is missing");
  check(is_secret(options.access_key) && is_secret(options.secret_key) &&
            is_secret(options.session_token),
        "the credentials contain a space or a character that is not ASCII");
  check(options.timeout > 0ms && options.timeout <= kLongestTimeout,
        "the timeout is not between 1 ms and 1 h");
  return options;
}

}  // namespace

// The connection to the server. libcurl keeps it open between requests, and opens a new one if it is broken.
class S3Tier::Connection {
 public:
  explicit Connection(const S3Options& options)
      : options_(options),
        signer_(fmt::format("aws:amz:{}:s3", options.region)),
        easy_(new_easy()) {
    if (sodium_init() == -1) throw std::bad_alloc();
  }

  // Returns the reply, whatever its status. Throws TierError if no complete reply came.
  HttpReply send(const Request& request);
  [[noreturn]] void fail(const Request& request, Kind kind, const std::string& why) const {
    throw TierError(kind, fmt::format("cannot {} in the bucket '{}' at {}: {}", request.action,
                                      options_.bucket, options_.endpoint, why));
  }
  [[noreturn]] void fail(const Request& request, const HttpReply& reply) const;

 private:
  template <class Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(easy_.get(), option, value);
    if (code != CURLE_OK)
      throw TierError(Kind::kRefused,
                      fmt::format("cannot use the S3 server: libcurl refuses option {}: {}",
                                  static_cast<int>(option), curl_easy_strerror(code)));
  }
  Headers headers_of(const Request& request) const;
  void set_policy();
  void set_request(const Request& request);
  bool has_length() const;

  const S3Options& options_;
  std::string signer_;
  std::unique_ptr<CURL, FreeEasy> easy_;
  std::array<char, CURL_ERROR_SIZE> error_{};
};

// libcurl 7.88 signs these headers, Host and X-Amz-Date. It does not add the hash of the body, which S3 demands.
Headers S3Tier::Connection::headers_of(const Request& request) const {
  Headers headers;
  append(headers, "X-Amz-Content-Sha256: " + sha256_hex(request.body));
  if (!options_.session_token.empty())
    append(headers, "X-Amz-Security-Token: " + options_.session_token);
  if (request.method == "PUT") {
    append(headers, "If-None-Match: *");
    append(headers, "Content-Type: application/octet-stream");
  }
  return headers;
}

// The options that are the same for all requests. libcurl's defaults follow no redirects, decompress nothing, and
// verify certificates.
void S3Tier::Connection::set_policy() {
  curl_easy_reset(easy_.get());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_PROXY, "");  // also overrides the environment
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_QUICK_EXIT, 1L);  // otherwise a call with a timeout waits for the resolver's thread
  set(CURLOPT_OPENSOCKETFUNCTION, open_socket);
  set(CURLOPT_WRITEFUNCTION, receive_body);
  set(CURLOPT_HEADERFUNCTION, receive_header);
  set(CURLOPT_ERRORBUFFER, error_.data());
  set(CURLOPT_USERNAME, options_.access_key.c_str());
  set(CURLOPT_PASSWORD, options_.secret_key.c_str());  // signs; is never sent
  set(CURLOPT_AWS_SIGV4, signer_.c_str());
}

// A PUT request is a POST request with another method. For CURLOPT_UPLOAD, libcurl 7.88 would wait for a reply "100
// Continue" even before a small body; the header that prevents this would be signed but not sent.
void S3Tier::Connection::set_request(const Request& request) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(request.deadline - Clock::now());
  const long left_ms = std::max<long>(left.count(), 1);
  set(CURLOPT_URL, (options_.endpoint + request.target).c_str());
  set(CURLOPT_TIMEOUT_MS, left_ms);
  set(CURLOPT_EXPECT_100_TIMEOUT_MS, std::min(left_ms / 4 + 1, 1000L));
  if (request.method == "PUT") {
    set(CURLOPT_POSTFIELDS, request.body.empty() ? "" : request.body.data());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }
  if (request.method == "HEAD") set(CURLOPT_NOBODY, 1L);
  set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

// Whether the reply says where its body ends. Without this, a body that was cut off looks complete.
bool S3Tier::Connection::has_length() const {
  curl_off_t length = -1;
  (void)curl_easy_getinfo(easy_.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
  curl_header* chunked = nullptr;
  return length >= 0 || curl_easy_header(easy_.get(), "Transfer-Encoding", 0, CURLH_HEADER, -1,
                                         &chunked) == CURLHE_OK;
}

HttpReply S3Tier::Connection::send(const Request& request) {
  const Headers headers = headers_of(request);
  Transfer transfer{easy_.get(), request.most_bytes};
  set_policy();
  set_request(request);
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_HEADERDATA, &transfer);
  error_[0] = '\0';
  const CURLcode code = curl_easy_perform(easy_.get());
  HttpReply reply;
  (void)curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &reply.status);
  if (transfer.is_too_long && reply.status == 200)
    fail(request, Kind::kRefused,
         fmt::format("the reply has more than {} bytes", request.most_bytes));
  if (code != CURLE_OK && !transfer.is_too_long)
    fail(request, code == CURLE_URL_MALFORMAT ? Kind::kRefused : Kind::kUnavailable,
         printable(error_[0] != '\0' ? error_.data() : curl_easy_strerror(code)));
  reply.body = std::move(transfer.body);
  if (reply.status == 200) {
    if (request.method == "GET" && !has_length())
      fail(request, Kind::kUnavailable, "the reply does not state its length");
    return reply;
  }
  const S3Error error = parse_s3_error(reply.body);
  reply.code = error.code.substr(0, kMostCodeBytes);
  reply.message = error.message.substr(0, kMostMessageBytes);
  return reply;
}

void S3Tier::Connection::fail(const Request& request, const HttpReply& reply) const {
  std::string why = fmt::format("the server answered {}", reply.status);
  if (reply.status / 100 == 3) why += ", a redirect, which is not followed";
  if (!reply.code.empty()) why += " " + printable(reply.code);
  if (!reply.message.empty()) why += ": " + printable(reply.message);
  fail(request, kind_of(reply), why);
}

S3Tier::S3Tier(S3Options options)
    : options_(checked(std::move(options))), connection_(std::make_unique<Connection>(options_)) {}

S3Tier::~S3Tier() = default;

std::string S3Tier::target_of(const std::string& key) const {
  const std::string name = options_.prefix.empty() ? key : options_.prefix + "/" + key;
  if (!is_s3_key(key) || name.size() > kMostNameBytes)
    throw TierError(
        Kind::kRefused,
        fmt::format(
            "cannot use '{}' as the key of an S3 object: it is too long, or has a segment '', '.' "
            "or '..', or is not text",
            printable(key)));
  return fmt::format("/{}/{}", options_.bucket, percent_encode(name, "/"));
}

// A 404 reply with a body that is not an S3 error, for example from a proxy, does not show that the key is absent.
std::optional<std::string> S3Tier::get(const std::string& key, std::size_t most_bytes) {
  const Request request{fmt::format("read '{}'", printable(key)), "GET", target_of(key), deadline(),
                        most_bytes};
  HttpReply reply = connection_->send(request);
  if (reply.status == 200) return std::move(reply.body);
  if (reply.status == 404 && (reply.code == "NoSuchKey" || reply.body.empty())) return std::nullopt;
  connection_->fail(request, reply);
}

// A reply to HEAD has no body, so it does not tell an absent key from an absent bucket.
bool S3Tier::exists(const std::string& key, Clock::time_point deadline) {
  const Request request{fmt::format("look for '{}'", printable(key)), "HEAD", target_of(key),
                        deadline};
  const HttpReply reply = connection_->send(request);
  if (reply.status != 200 && reply.status != 404) connection_->fail(request, reply);
  return reply.status == 200;
}

// 409 ConditionalRequestConflict: another request for the same key was in progress.
PutOutcome S3Tier::put_if_absent(const std::string& key, std::string_view object) {
  Request request{fmt::format("store '{}'", printable(key)), "PUT", target_of(key), deadline()};
  request.body = object;
  for (int tries = 0; tries < 2; ++tries) {
    const HttpReply reply = connection_->send(request);
    if (reply.status == 200) return PutOutcome::kStored;
    if (reply.status == 412) return PutOutcome::kExists;
    if (reply.status != 409) connection_->fail(request, reply);
  }
  if (exists(key, request.deadline)) return PutOutcome::kExists;
  connection_->fail(request, Kind::kUnavailable, "other requests for the same key are in progress");
}

bool S3Tier::remove(const std::string& key) {
  const Request request{fmt::format("remove '{}'", printable(key)), "DELETE", target_of(key),
                        deadline()};
  if (!exists(key, request.deadline)) return false;
  const HttpReply reply = connection_->send(request);
  if (reply.status != 200 && reply.status != 204 && reply.status != 404)
    connection_->fail(request, reply);
  return reply.status != 404;
}

void S3Tier::refuse_lease() const {
  throw TierError(Kind::kRefused, "cannot use leases: an S3 server has none");
}

std::optional<std::uint64_t> S3Tier::acquire(const std::string& /*key*/,
                                             const std::string& /*owner*/,
                                             std::chrono::milliseconds /*ttl*/) {
  refuse_lease();
}

bool S3Tier::renew(const std::string& /*key*/, const std::string& /*owner*/,
                   std::chrono::milliseconds /*ttl*/) {
  refuse_lease();
}

void S3Tier::release(const std::string& /*key*/, const std::string& /*owner*/) { refuse_lease(); }

void S3Tier::wait(const std::string& key, std::chrono::milliseconds timeout) {
  const auto end = Clock::now() + std::min(timeout, kLongestS3Wait);
  for (auto pause = kFirstS3Pause;; pause = std::min(2 * pause, kLongestPause)) {
    std::this_thread::sleep_until(std::min(end, Clock::now() + pause));
    if (Clock::now() >= end) return;
    try {
      if (exists(key, std::min(end, deadline()))) return;
    } catch (const TierError&) {
      if (Clock::now() < end) throw;
      return;  // the wait ended before the reply came
    }
  }
}

CataloguePage S3Tier::keys_since(const std::string& position, std::size_t most) {
  const std::string prefix = options_.prefix.empty() ? "" : options_.prefix + "/";
  std::string query =
      position.empty() ? "" : fmt::format("continuation-token={}&", percent_encode(position));
  query += fmt::format("encoding-type=url&list-type=2&max-keys={}&prefix={}",
                       std::clamp<std::size_t>(most, 1, kMostKeysOfPage), percent_encode(prefix));
  const Request request{"list the keys", "GET", fmt::format("/{}?{}", options_.bucket, query),
                        deadline(), kMostPageBytes};
  const HttpReply reply = connection_->send(request);
  if (reply.status == 400 && !position.empty()) return {};  // the server rejects the cursor
  if (reply.status != 200) connection_->fail(request, reply);
  auto listing = parse_s3_listing(reply.body);
  if (!listing || (listing->next == position && !position.empty()))
    connection_->fail(request, Kind::kUnavailable, "the reply is not a listing");
  CataloguePage page{{}, std::move(listing->next), false};
  page.is_last = page.position.empty();
  for (const std::string& name : listing->names) {
    if (!name.starts_with(prefix))
      connection_->fail(request, Kind::kUnavailable, "the reply lists other names");
    if (is_s3_key(name.substr(prefix.size()))) page.keys.push_back(name.substr(prefix.size()));
  }
  return page;
}

}  // namespace cacheshim::remote
