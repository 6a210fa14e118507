// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/limit_rows.h"

namespace cacheshim {
class TomlProblem;
class TomlReader;
}  // namespace cacheshim

namespace cacheshim::cli {

// Reads the section [limits]. Missing keys have their default values.
LimitValues read_limits(TomlReader& root, TomlProblem& problem);

}  // namespace cacheshim::cli
