// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include "cli/commands/commands.h"
#include "cli/control_client.h"
#include "cli/failure.h"
#include "cli/paths.h"
#include "cli/text.h"
#include "common/exit_codes.h"
#include "common/unique_fd.h"
#include "store/sys/sys.h"

namespace cacheshim::cli {
namespace {

struct MetricsArguments {
  std::string mount;
  std::string textfile;
};

Failure cannot_write(const std::string& file) {
  return {kExitFailed, fmt::format("cannot write the metrics to '{}': {}; it keeps its content",
                                   file, std::strerror(errno))};
}

// Replaces `file` as a whole, because node_exporter may read it at any time. Its name ends with .prom, and node_exporter
// ignores all other files.
void replace_file(const std::string& file, const std::string& text) {
  std::string temporary = file + ".XXXXXX";
  const UniqueFd created(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!created) throw cannot_write(file);
  constexpr mode_t kReadableByAll = 0644;
  const bool is_replaced = sys::write_all(created.get(), text) &&
                           ::fchmod(created.get(), kReadableByAll) == 0 &&
                           ::rename(temporary.c_str(), file.c_str()) == 0;
  if (is_replaced) return;
  const Failure failure = cannot_write(file);
  (void)::unlink(temporary.c_str());
  throw failure;
}

}  // namespace

void add_metrics(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<MetricsArguments>();
  CLI::App* command = app.add_subcommand("metrics", "Print the metrics of a mount for Prometheus");
  command
      ->add_option("--mount", arguments->mount,
                   "The mount (default: $CACHESHIM_MOUNT or /ci-cache)")
      ->type_name("M");
  command
      ->add_option("--textfile", arguments->textfile,
                   "Replace FILE instead, for node_exporter's textfile collector")
      ->type_name("FILE");
  command->footer("The daemon itself serves Prometheus if the configuration has [metrics] listen.");
  command->callback([arguments, &exit_code] {
    const std::string text = ControlClient(chosen_mount(arguments->mount)).read("metrics");
    if (arguments->textfile.empty()) {
      print_lines(text);
    } else {
      replace_file(arguments->textfile, text);
    }
    exit_code = kExitSuccess;
  });
}

}  // namespace cacheshim::cli
