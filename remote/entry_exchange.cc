// SPDX-License-Identifier: Apache-2.0
#include "remote/entry_exchange.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <utility>

#include "store/base/base_units.h"
#include "store/sys/sys.h"

namespace cacheshim::remote {
namespace {

constexpr const char* kJob = "remote";  // the publishing job in the audit records

ObjectLimits limits_of(const Settings& settings) { return {.content_bytes = settings.most_bytes}; }

ExpectedEntry expected_of(const EntryMap& entries, const std::string& unit,
                          const Settings& settings) {
  const auto is_part = [&entries, unit](const std::string& path) {
    const auto ref = entries.find(path);
    return ref && !ref->rule->is_directory() && ref->unit() == unit;
  };
  return {.unit = unit, .generation = settings.generation, .is_part = is_part};
}

// A new directory in this daemon's staging directory. The destructor removes it with its content.
class Staging {
 public:
  static Result<Staging> make(const Store& store) {
    static std::atomic<unsigned> count{0};
    std::string name = fmt::format("remote-{}", count++);
    CACHESHIM_CHECK(sys::make_dir_at(store.staging(), name, 0700));
    CACHESHIM_TRY(directory, sys::open_beneath(store.staging(), name, O_RDONLY | O_DIRECTORY));
    return Staging(store.staging(), std::move(name), std::move(directory));
  }
  Staging(Staging&& other) noexcept
      : parent_(other.parent_),
        name_(std::exchange(other.name_, "")),
        directory_(std::move(other.directory_)) {}
  Staging& operator=(Staging&& other) = delete;
  ~Staging() {
    // If this fails, a later Store::open() sweeps the leftovers with this daemon's staging directory.
    if (!name_.empty()) (void)sys::remove_tree(parent_, name_);
  }
  int directory() const { return directory_.get(); }

 private:
  Staging(int parent, std::string name, UniqueFd directory)
      : parent_(parent), name_(std::move(name)), directory_(std::move(directory)) {}

  int parent_;
  std::string name_;
  UniqueFd directory_;
};

std::vector<AuditFile> audit_files(const Manifest& manifest) {
  std::vector<AuditFile> files;
  for (const EntryFile& file : manifest.files) files.push_back({file.path, file.size, file.digest});
  return files;
}

Status sync_files(const Staging& staging, const Manifest& manifest) {
  for (const EntryFile& file : manifest.files) {
    if (!file.link.empty()) continue;
    CACHESHIM_TRY(fd, sys::open_beneath(staging.directory(), file.path, O_RDONLY | O_NOFOLLOW));
    CACHESHIM_CHECK(sys::sync_file(fd.get()));
  }
  return {};
}

AdoptionResult failed(const std::string& unit, const char* what, Errno error) {
  return {Adoption::kFailed,
          fmt::format("'{}': cannot {}: {}", unit, what, std::strerror(error.code())),
          {}};
}

AdoptionResult adopt_staged(const Staging& staging, Publisher& publisher,
                            const Manifest& manifest) {
  const std::string& unit = manifest.unit;
  auto files = audit_files(manifest);
  std::vector<std::string> paths;
  for (const AuditFile& file : files) paths.push_back(file.path);
  const auto added = publisher.adopt(staging.directory(), unit, std::move(files),
                                     {.job = kJob, .cycle = "", .uid = {}});
  if (added.failed_with(EXDEV)) {
    return {Adoption::kDamaged, fmt::format("'{}' names paths outside this mount", unit), {}};
  }
  if (!added) return failed(unit, "add it to the base", added.error());
  if (!*added) return {Adoption::kPresent, "", {}};
  return {Adoption::kAdopted, "", std::move(paths)};
}

}  // namespace

std::variant<ExchangeKeys, RemoteError> load_keys(const Settings& settings) {
  const auto refuse = [](const KeyError& error) {
    return RemoteError{RemoteError::Kind::kRefused, error.message};
  };
  ExchangeKeys keys;
  if (!settings.sign_with.empty()) {
    auto read = read_secret_key(settings.sign_with);
    if (const auto* const error = std::get_if<KeyError>(&read)) return refuse(*error);
    keys.signing = std::get<SecretKey>(std::move(read));
    keys.allowed.push_back(keys.signing->public_key());
  }
  if (!settings.signers.empty()) {
    auto read = read_public_keys(settings.signers);
    if (const auto* const error = std::get_if<KeyError>(&read)) return refuse(*error);
    auto& signers = std::get<std::vector<PublicKey>>(read);
    keys.allowed.insert(keys.allowed.end(), signers.begin(), signers.end());
  }
  return keys;
}

bool is_exchanged(const EntryMap& entries, std::string_view unit) {
  const auto ref = entries.find(unit);
  return ref && ref->profile->may_publish_early() && ref->unit() == unit &&
         !entries.is_common(unit);
}

std::variant<std::string, ObjectError> pack_unit(const Store& store, const EntryMap& entries,
                                                 const std::string& unit, std::uint64_t build_ms,
                                                 const SecretKey& key, const Settings& settings) {
  const auto ref = entries.find(unit);
  const EntryFacts facts{.generation = settings.generation,
                         .node = node_name(),
                         .profile = ref ? ref->profile->name : "",
                         .published = static_cast<std::uint64_t>(std::time(nullptr)),
                         .build_ms = build_ms};
  return pack({store.base(), unit, base_unit(entries, unit).paths}, facts, key,
              limits_of(settings));
}

AdoptionResult adopt_object(const Store& store, Publisher& publisher, const EntryMap& entries,
                            const std::string& unit, std::string_view object,
                            const ExchangeKeys& keys, const Settings& settings) {
  const auto opened =
      open_object(object, expected_of(entries, unit, settings), keys.allowed, limits_of(settings));
  if (const auto* const refusal = std::get_if<ObjectRefusal>(&opened)) {
    const bool is_untrusted =
        refusal->reason == Refusal::kUntrusted || refusal->reason == Refusal::kStale;
    return {is_untrusted ? Adoption::kUntrusted : Adoption::kDamaged,
            fmt::format("'{}': {}", unit, refusal->message),
            {}};
  }
  const auto& manifest = std::get<Manifest>(opened);
  const auto staging = Staging::make(store);
  if (!staging) return failed(unit, "stage it", staging.error());
  if (const auto error = unpack(object, manifest, staging->directory())) {
    const bool is_damaged = error->code == EBADMSG;
    return {is_damaged ? Adoption::kDamaged : Adoption::kFailed, error->message, {}};
  }
  if (const Status synced = sync_files(*staging, manifest); !synced)
    return failed(unit, "sync it", synced.error());
  return adopt_staged(*staging, publisher, manifest);
}

std::string fault_of_object(const EntryMap& entries, const std::string& unit,
                            std::string_view object, const ExchangeKeys& keys,
                            const Settings& settings) {
  const auto opened =
      open_object(object, expected_of(entries, unit, settings), keys.allowed, limits_of(settings));
  const auto* const refusal = std::get_if<ObjectRefusal>(&opened);
  return refusal != nullptr ? refusal->message : "";
}

}  // namespace cacheshim::remote
