// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <variant>

#include "remote/entry_object.h"

// The text of a manifest. to_text() of entry_object.h writes it.
namespace cacheshim::remote {

// Returns the manifest that has this text, which may come from another machine. Refuses a text that differs in any byte
// from what to_text() writes for the result. Does not check the rules for the values (manifest_rules.h). Thread-safe;
// throws only std::bad_alloc.
std::variant<Manifest, ObjectRefusal> parse_manifest(std::string_view text);

}  // namespace cacheshim::remote
