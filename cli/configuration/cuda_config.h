// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "store/sys/toml_reader.h"

namespace cacheshim::cli {

// Reads [cuda]: `eager` and `match` for every program, and `[cuda.programs]`, whose keys are names
// or patterns (fnmatch(3)) of programs and whose values are a policy or a table of the two. Returns
// the text of the run directory's file (common/cuda_defaults.h), empty where there is no such
// section; a name goes before a pattern, a longer pattern before a shorter one. Reports what makes
// no sense.
std::string read_cuda_defaults(TomlReader& root, TomlProblem& problem);

}  // namespace cacheshim::cli
