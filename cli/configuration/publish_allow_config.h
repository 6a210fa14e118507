// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "store/profiles/publish_allow.h"
#include "store/sys/toml_reader.h"

namespace cacheshim::cli {

// The table `allow` of [publish]: users and groups by name or id, and SLURM's jobs by pattern. Nothing where
// it is missing, so that everybody may publish; an empty one lets nobody.
std::optional<PublishAllow> read_publish_allow(TomlReader& publish, TomlProblem& problem);

}  // namespace cacheshim::cli
