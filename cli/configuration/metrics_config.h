// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "metrics/settings.h"

namespace cacheshim {
class TomlProblem;
class TomlReader;
}  // namespace cacheshim

namespace cacheshim::cli {

// Reads the section [metrics]. Without it, returns settings without an address.
metrics::Settings read_metrics(TomlReader& root, TomlProblem& problem);

}  // namespace cacheshim::cli
