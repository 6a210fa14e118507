// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>
#include <string>

#include "tests/parity/side.h"

// One random operation of the model, which is performed on both sides.
namespace cacheshim::parity {

class ModelAction {
 public:
  static ModelAction random(std::mt19937& random);
  // Parses the result of text(). Exits on any other text.
  static ModelAction parse(const std::string& text);

  void carry_out(Side& side) const;
  bool fits_a_base() const;
  std::string text() const;  // "rename da/fb dc #700"

 private:
  unsigned kind_ = 0;
  std::string first_;
  std::string second_;
  unsigned number_ = 0;  // a size, an offset or a mode, depending on the kind
};

// Returns a random name from a small set, so that operations often use the same name.
std::string random_model_name(std::mt19937& random);

}  // namespace cacheshim::parity
