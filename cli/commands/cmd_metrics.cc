// SPDX-License-Identifier: Apache-2.0
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
#include "common/result.h"
#include "common/unique_fd.h"
#include "store/sys/sys.h"

namespace cacheshim::cli {
namespace {

struct MetricsArguments {
  std::string mount;
  std::string textfile;
};

Failure cannot_write(const std::string& file, Errno error) {
  return {kExitFailed,
          fmt::format("cannot write the metrics to '{}': {}; nothing was changed there", file,
                      std::strerror(error.code()))};
}

Status write_for_all(int fd, const std::string& text) {
  constexpr mode_t kReadableByAll = 0644;
  CACHESHIM_CHECK(sys::write_all(fd, text));
  if (::fchmod(fd, kReadableByAll) != 0) return Errno::last();
  return {};
}

// Replaces `file` as a whole, because node_exporter may read it at any time. node_exporter ignores the temporary file,
// whose name does not end with .prom.
void replace_file(const std::string& file, const std::string& text) {
  std::string temporary = file + ".XXXXXX";
  const UniqueFd created(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!created) throw cannot_write(file, Errno::last());
  Status written = write_for_all(created.get(), text);
  if (written && ::rename(temporary.c_str(), file.c_str()) != 0) written = Errno::last();
  if (written) return;
  (void)::unlink(temporary.c_str());
  throw cannot_write(file, written.error());
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
