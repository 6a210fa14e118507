// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "store/sys/toml_reader.h"

namespace cacheshim::cli {

// Reads [cuda]: `eager` and `match` for every program, and `[cuda.programs]`, whose keys are names
// or patterns (fnmatch(3)) of programs and whose values are a policy or a table of `eager` and
// `match`. Returns the text of the run directory's file (common/cuda_defaults.h), empty if there is
// no such section. A name takes precedence over a pattern, and a longer pattern over a shorter one.
// Reports invalid values.
std::string read_cuda_defaults(TomlReader& root, TomlProblem& problem);

}  // namespace cacheshim::cli
