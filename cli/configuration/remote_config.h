// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "remote/settings.h"

namespace cacheshim {
class TomlProblem;
class TomlReader;
}  // namespace cacheshim

namespace cacheshim::cli {

// Reads the section [remote]. Without it, returns settings without URLs.
remote::Settings read_remote(TomlReader& root, TomlProblem& problem);

}  // namespace cacheshim::cli
