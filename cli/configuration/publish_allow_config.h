// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "store/profiles/publish_allow.h"
#include "store/sys/toml_reader.h"

namespace cacheshim::cli {

// Reads the table `allow` of [publish]: users and groups by name or id, and SLURM's jobs by
// pattern. Returns nothing if the table is missing: every user may then publish. With an empty
// table, no user may.
std::optional<PublishAllow> read_publish_allow(TomlReader& publish, TomlProblem& problem);

}  // namespace cacheshim::cli
