// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/limit_rows.h"

namespace cacheshim {
class TomlProblem;
class TomlReader;
}  // namespace cacheshim

namespace cacheshim::cli {

// Reads the section [limits]. A key that is missing has its standard value.
LimitValues read_limits(TomlReader& root, TomlProblem& problem);

}  // namespace cacheshim::cli
