// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "store/sys/toml_reader.h"

namespace cacheshim::cli {

// Reads [cuda]: `eager` and `match` for every program, and [cuda.programs]. A key of [cuda.programs] is the name of a
// program or a pattern for names (fnmatch(3)); its value is a policy, or a table of `eager` and `match`. Returns the
// text of the run directory's file (common/cuda_defaults.h), or an empty text if there is no [cuda]. A name takes
// precedence over a pattern, and a longer pattern over a shorter one. Reports invalid values.
std::string read_cuda_defaults(TomlReader& root, TomlProblem& problem);

}  // namespace cacheshim::cli
