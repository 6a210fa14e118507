// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <string>

#include "cli/commands/commands.h"
#include "cli/failure.h"
#include "cli/paths.h"
#include "cli/text.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {

void add_preload_path(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("preload-path", "Print the preloaded library's path");
  command->footer(
      "For job scripts: export LD_PRELOAD=$(cacheshim preload-path)\n"
      "Exit codes: 0 the library is installed; 69 it is not.");
  command->callback([&exit_code] {
    const std::string library = find_installation().library;
    if (::access(library.c_str(), R_OK) != 0)
      throw Failure(kExitUnavailable, fmt::format("no library at '{}'; install it there", library));
    print_row(library);
    exit_code = kExitSuccess;
  });
}

}  // namespace cacheshim::cli
