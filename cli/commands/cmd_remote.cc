// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/configuration/config.h"
#include "cli/configuration/setup.h"
#include "cli/configuration/units.h"
#include "cli/control_client.h"
#include "cli/failure.h"
#include "cli/paths.h"
#include "cli/text.h"
#include "common/exit_codes.h"
#include "remote/client.h"
#include "remote/engine_keys.h"
#include "remote/entry_exchange.h"
#include "store/base/base_units.h"
#include "store/sys/sys.h"

namespace cacheshim::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kPage = 10'000;
// A damaged or malicious engine must not make a command run forever.
constexpr std::size_t kMostPages = 20'000;
constexpr std::size_t kMostUnits = 10'000'000;

struct RemoteArguments {
  std::string config;
  std::string store;
  std::string mount;
  std::string family;
  std::vector<std::string> entries;
  std::string key_file;
  std::string comment;
  bool as_json = false;
  bool are_packs = false;  // the command concerns packs, not entries
};

[[noreturn]] void fail(const remote::RemoteError& error) {
  const bool is_refused = error.kind == remote::RemoteError::Kind::kRefused;
  throw Failure(is_refused ? kExitFailed : kExitUnavailable, "the remote tier: " + error.text);
}

// Returns the value, or throws the error as a Failure.
template <class T>
T value_of(std::variant<T, remote::RemoteError> outcome) {
  if (const auto* const error = std::get_if<remote::RemoteError>(&outcome)) fail(*error);
  return std::get<T>(std::move(outcome));
}

// The remote tier that the configuration names.
struct Tier {
  explicit Tier(const RemoteArguments& arguments)
      : settings(settings_of(arguments)),
        client(value_of(remote::start_helper(settings, find_installation().remote_helper))) {}

  static remote::Settings settings_of(const RemoteArguments& arguments) {
    remote::Settings settings = load_config(arguments.config).remote;
    if (settings.urls.empty())
      throw Failure(kExitUsage, "no remote tier: set url in [remote] of the configuration");
    return settings;
  }

  // Returns the names of the entries or packs in the tier, sorted. `name_of` returns the name that a key stands for, or
  // nothing for a key of the other kind.
  using NameOfKey = std::optional<std::string>(const remote::Settings&, std::string_view key);
  std::vector<std::string> names(NameOfKey* name_of) {
    std::set<std::string> found;
    remote::Client::Keys page{{}, "", false};
    for (std::size_t pages = 0; !page.is_last; ++pages) {
      if (pages == kMostPages || found.size() > kMostUnits)
        throw Failure(kExitFailed, "the remote tier: its list of entries does not end");
      page = value_of(client.keys_since(page.position, kPage));
      for (const std::string& key : page.keys) {
        if (auto name = name_of(settings, key)) found.insert(*std::move(name));
      }
    }
    return {found.begin(), found.end()};
  }
  std::vector<std::string> units() { return names(remote::unit_of_key); }

  remote::Settings settings;
  remote::Client client;
};

// The store whose entries are pushed, or into which entries are fetched. Opened without its daemon.
struct LocalStore {
  explicit LocalStore(const RemoteArguments& arguments)
      : profiles(load_all_profiles(find_installation().profiles, arguments.config)),
        entries(profiles),
        store(open(arguments)) {}

  static Store open(const RemoteArguments& arguments) {
    std::string path = arguments.store;
    if (path.empty()) {
      const ControlClient client(chosen_mount(arguments.mount));
      path = json::parse(client.read("status")).value("store", "");
    }
    auto opened = Store::open(resolve_path(path), "");
    if (auto* const error = std::get_if<StoreError>(&opened))
      throw Failure(kExitUnavailable, error->message);
    return std::get<Store>(std::move(opened));
  }

  const std::vector<Profile> profiles;
  const EntryMap entries;
  const Store store;
};

bool is_in_family(const std::string& unit, const std::string& family) {
  return family.empty() || unit.starts_with(family + "/");
}

// Counts what happened to the entries of one command, and reports each failure on a line.
class Tally {
 public:
  explicit Tally(bool as_json) : as_json_(as_json) {}

  void add(const char* outcome, const std::string& unit, const std::string& why = "") {
    units_[outcome].push_back(unit);
    if (why.empty()) return;
    failed_ = true;
    print_line(why);
  }

  // Prints the number of entries for each outcome, or all entries as JSON. Returns the exit code. `texts`: the outcomes
  // and the words for them.
  int print(const std::vector<std::pair<const char*, const char*>>& texts) {
    if (as_json_) {
      json all = json::object();
      for (const auto& [outcome, text] : texts) all[outcome] = units_[outcome];
      print_json(all);
    } else {
      std::vector<std::string> parts;
      for (const auto& [outcome, text] : texts) {
        parts.push_back(
            fmt::format("{} {}", format_count(units_[outcome].size(), "entry", "entries"), text));
      }
      print_row(fmt::format("{}", fmt::join(parts, ", ")));
    }
    return failed_ ? kExitFailed : kExitSuccess;
  }

 private:
  const bool as_json_;
  bool failed_ = false;
  std::map<std::string, std::vector<std::string>> units_;
};

int list(const RemoteArguments& arguments) {
  Tier tier(arguments);
  auto names = arguments.are_packs ? tier.names(remote::pack_of_key) : tier.units();
  std::erase_if(names,
                [&](const std::string& name) { return !is_in_family(name, arguments.family); });
  if (arguments.as_json) {
    print_json({{arguments.are_packs ? "packs" : "entries", names}});
    return kExitSuccess;
  }
  for (const std::string& name : names) print_row(name);
  return kExitSuccess;
}

int push(const RemoteArguments& arguments) {
  Tier tier(arguments);
  const remote::ExchangeKeys keys = value_of(remote::load_keys(tier.settings));
  if (!keys.signing)
    throw Failure(kExitUsage,
                  "nothing can be pushed: set sign_with in [remote] of the configuration");
  const LocalStore local(arguments);
  std::vector<std::string> units = arguments.entries;
  if (units.empty()) {
    for (BaseUnit& unit : list_base_units(local.store, local.entries)) {
      if (is_in_family(unit.unit, arguments.family) &&
          remote::is_exchanged(local.entries, unit.unit)) {
        units.push_back(std::move(unit.unit));
      }
    }
    std::sort(units.begin(), units.end());
  }
  Tally tally(arguments.as_json);
  for (const std::string& unit : units) {
    if (!remote::is_exchanged(local.entries, unit)) {
      tally.add("failed", unit,
                fmt::format("'{}' is no entry that a profile allows to publish", unit));
      continue;
    }
    const auto object =
        remote::pack_unit(local.store, local.entries, unit, 0, *keys.signing, tier.settings);
    if (const auto* const error = std::get_if<remote::ObjectError>(&object)) {
      tally.add("failed", unit, error->message);
      continue;
    }
    const bool is_stored = value_of(tier.client.put_if_absent(
        remote::object_key(tier.settings, unit), std::get<std::string>(object)));
    tally.add(is_stored ? "pushed" : "present", unit);
  }
  return tally.print({{"pushed", "pushed"}, {"present", "there already"}, {"failed", "failed"}});
}

// Calls `use` with the object of each unit. If an object is missing, or the request for it is refused, adds a failure
// to `tally` instead.
void for_each_object(
    Tier& tier, const std::vector<std::string>& units, Tally& tally,
    const std::function<void(const std::string& unit, const std::string& object)>& use) {
  const std::uint64_t most = remote::most_object_bytes({.content_bytes = tier.settings.most_bytes});
  for (const std::string& unit : units) {
    auto got = tier.client.get(remote::object_key(tier.settings, unit), most);
    const auto* const error = std::get_if<remote::RemoteError>(&got);
    if (error != nullptr &&
        error->kind == remote::RemoteError::Kind::kRefused) {  // this object, not the engine
      tally.add("failed", unit, fmt::format("'{}': {}", unit, error->text));
      continue;
    }
    const auto object = value_of(std::move(got));
    if (object) {
      use(unit, *object);
    } else {
      tally.add("failed", unit, fmt::format("'{}' is not in the remote tier", unit));
    }
  }
}

std::vector<std::string> wanted_units(Tier& tier, const RemoteArguments& arguments) {
  auto units = arguments.entries.empty() ? tier.units() : arguments.entries;
  std::erase_if(units,
                [&](const std::string& unit) { return !is_in_family(unit, arguments.family); });
  return units;
}

int get(const RemoteArguments& arguments) {
  Tier tier(arguments);
  const remote::ExchangeKeys keys = value_of(remote::load_keys(tier.settings));
  const LocalStore local(arguments);
  Counters counters;
  Publisher publisher(local.store, local.entries, counters);
  Tally tally(arguments.as_json);
  auto units = wanted_units(tier, arguments);
  std::erase_if(units, [&](const std::string& unit) {
    const bool is_there =
        static_cast<bool>(sys::open_beneath(local.store.base(), unit, O_PATH | O_NOFOLLOW));
    if (is_there) tally.add("present", unit);
    return is_there;
  });
  for_each_object(tier, units, tally, [&](const std::string& unit, const std::string& object) {
    const auto adopted = remote::adopt_object(local.store, publisher, local.entries, unit, object,
                                              keys, tier.settings);
    const bool is_there = adopted.outcome == remote::Adoption::kPresent;
    const char* const outcome = is_there ? "present" : "fetched";
    tally.add(adopted.why.empty() ? outcome : "failed", unit, adopted.why);
  });
  return tally.print({{"fetched", "fetched"}, {"present", "there already"}, {"failed", "failed"}});
}

int verify(const RemoteArguments& arguments) {
  Tier tier(arguments);
  const remote::ExchangeKeys keys = value_of(remote::load_keys(tier.settings));
  const auto profiles = load_all_profiles(find_installation().profiles, arguments.config);
  const EntryMap entries(profiles);
  Tally tally(arguments.as_json);
  for_each_object(tier, wanted_units(tier, arguments), tally,
                  [&](const std::string& unit, const std::string& object) {
                    const std::string fault =
                        remote::fault_of_object(entries, unit, object, keys, tier.settings);
                    tally.add(fault.empty() ? "valid" : "failed", unit,
                              fault.empty() ? "" : fmt::format("'{}': {}", unit, fault));
                  });
  return tally.print({{"valid", "valid"}, {"failed", "failed"}});
}

int remove(const RemoteArguments& arguments) {
  Tier tier(arguments);
  Tally tally(arguments.as_json);
  for (const std::string& name : arguments.entries) {
    const std::string key = arguments.are_packs ? remote::pack_key(tier.settings, name)
                                                : remote::object_key(tier.settings, name);
    const bool existed = value_of(tier.client.remove(key));
    tally.add(existed ? "removed" : "failed", name,
              existed ? "" : fmt::format("'{}' is not in the remote tier", name));
  }
  return tally.print({{"removed", "removed"}, {"failed", "failed"}});
}

int make_key(const RemoteArguments& arguments) {
  const remote::SecretKey key = remote::SecretKey::generate();
  if (const auto error = remote::write_secret_key(arguments.key_file, key))
    throw Failure(kExitFailed, error->message);
  print_row(remote::to_text(key.public_key(arguments.comment)));
  return kExitSuccess;
}

using Body = int (*)(const RemoteArguments& arguments);

CLI::App* add_command(CLI::App& app, const char* name, const char* help, Body body,
                      const std::shared_ptr<RemoteArguments>& arguments, int& exit_code) {
  CLI::App* command = app.add_subcommand(name, help);
  command->callback([arguments, body, &exit_code] { exit_code = body(*arguments); });
  return command;
}

CLI::App* add_tier_command(CLI::App& app, const char* name, const char* help, Body body,
                           const std::shared_ptr<RemoteArguments>& arguments, int& exit_code) {
  CLI::App* command = add_command(app, name, help, body, arguments, exit_code);
  command
      ->add_option("--config", arguments->config,
                   "Configuration file (default: cacheshim.toml in /etc/cacheshim)")
      ->type_name("FILE");
  command->add_flag("--json", arguments->as_json, "As JSON");
  return command;
}

void add_family(CLI::App* command, const std::shared_ptr<RemoteArguments>& arguments) {
  command->add_option("--profile", arguments->family, "Only entries of this profile")
      ->type_name("NAME");
}

void add_packs(CLI::App* command, const char* help,
               const std::shared_ptr<RemoteArguments>& arguments) {
  command->add_flag("--packs", arguments->are_packs, help);
}

void add_store(CLI::App* command, const std::shared_ptr<RemoteArguments>& arguments) {
  command->add_option("--store", arguments->store, "The store (default: the mount's)")
      ->type_name("DIR");
  command
      ->add_option("--mount", arguments->mount,
                   "The mount (default: $CACHESHIM_MOUNT or /ci-cache)")
      ->type_name("M");
}

void add_entries(CLI::App* command, const char* help,
                 const std::shared_ptr<RemoteArguments>& arguments) {
  command->add_option("ENTRY", arguments->entries, help);
}

}  // namespace

void add_remote(CLI::App& app, int& exit_code) {
  CLI::App* remote =
      app.add_subcommand("remote", "Exchange entries with other machines through a remote tier");
  remote->require_subcommand(1);
  remote->footer(
      "[remote] in the configuration names the engine: Redis, S3 or a shared directory. Entries are\n"
      "signed, and only those of allowed signers are used. Exit codes: 0 success; 1 an entry failed;\n"
      "2 there is no remote tier; 69 the engine does not answer.");
  auto arguments = std::make_shared<RemoteArguments>();
  CLI::App* ls = add_tier_command(*remote, "ls", "List the entries in the remote tier", list,
                                  arguments, exit_code);
  add_family(ls, arguments);
  add_packs(ls, "List packs instead, as UID/NAME (docs/remote.md)", arguments);
  ls->get_option("--packs")->excludes("--profile");
  CLI::App* fetch =
      add_tier_command(*remote, "get", "Fetch entries into the store", get, arguments, exit_code);
  add_family(fetch, arguments);
  add_store(fetch, arguments);
  add_entries(fetch, "Entries, such as triton/KEY (default: all)", arguments);
  CLI::App* send =
      add_tier_command(*remote, "push", "Push entries of the store", push, arguments, exit_code);
  add_family(send, arguments);
  add_store(send, arguments);
  add_entries(send, "Entries, such as triton/KEY (default: all)", arguments);
  CLI::App* rm = add_tier_command(*remote, "rm", "Remove entries from the remote tier", remove,
                                  arguments, exit_code);
  add_entries(rm, "Entries, such as triton/KEY", arguments);
  add_packs(rm, "The arguments are packs, as UID/NAME", arguments);
  rm->get_option("ENTRY")->required();
  CLI::App* check = add_tier_command(*remote, "verify", "Verify the objects in the remote tier",
                                     verify, arguments, exit_code);
  add_family(check, arguments);
  add_entries(check, "Entries, such as triton/KEY (default: all)", arguments);
  CLI::App* keygen =
      add_command(*remote, "keygen", "Create a key that signs entries; print its public key",
                  make_key, arguments, exit_code);
  keygen->add_option("FILE", arguments->key_file, "The new file for the secret key")
      ->required()
      ->type_name("FILE");
  keygen->add_option("--comment", arguments->comment, "A comment in the public key")
      ->type_name("TEXT");
}

}  // namespace cacheshim::cli
