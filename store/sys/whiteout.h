// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <string>
#include <string_view>

// The whiteouts of a layer. As in OCI image layers (image-spec, layer.md, "Whiteouts"), an empty
// file with a special name records that a name of the base is removed. This needs no device nodes,
// xattrs or privileges.
namespace cacheshim {

inline constexpr std::string_view kWhiteoutPrefix = ".wh.";

// An empty file of this name in a directory hides everything that the base has in that directory.
inline constexpr std::string_view kOpaqueMarker = ".wh..wh..opq";

// Returns the name of the empty file that hides `name`: ".wh." + name or, if `name` has more than
// 251 bytes and this would not fit, ".wh..wh.long." + xxh3-128 of the name in hex.
std::string whiteout_name(std::string_view name);

// Whether whiteout_name(`name`) has the second form, with the hash.
inline bool needs_encoding(std::string_view name) {
  return name.size() > 255 - kWhiteoutPrefix.size();  // NAME_MAX
}

// The whiteout of the kernel's overlayfs: a character device 0:0. cacheshim obeys it in lowers, and never
// creates it.
inline bool is_device_whiteout(mode_t mode, dev_t device) {
  return S_ISCHR(mode) && device == makedev(0, 0);
}

// Whether the kernel's overlayfs uses the attribute for its records, for example to mark a directory as opaque.
// cacheshim obeys these attributes in lowers, but does not copy them up and does not let jobs set them.
inline bool is_overlay_xattr(std::string_view name) {
  return name.starts_with("user.overlay.") || name.starts_with("trusted.overlay.");
}

// Whether a name is reserved for cacheshim's records. Jobs can neither see nor create such names.
inline bool is_reserved_name(std::string_view name) { return name.starts_with(kWhiteoutPrefix); }

}  // namespace cacheshim
