// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/parity/fixture.h"
#include "tests/parity/side.h"

namespace cacheshim::parity {

struct Case {
  std::string name;                 // unique, and usable as a directory's name
  std::vector<std::string> names;   // the names that the fixture creates for the case
  std::function<void(Side&)> body;  // the calls that are made on each side
};

class CaseList {
 public:
  const std::vector<Case>& cases() const { return cases_; }

  void add(std::string name, std::vector<std::string> names, std::function<void(Side&)> body);

  // Adds a case for each of `names`.
  void add_for_each(const std::string& operation, const std::vector<std::string>& names,
                    std::function<void(Side&, const std::string&)> body);
  // Adds a case for each pair of a name from `first` and a name from `second`.
  void add_for_pairs(const std::string& operation, const std::vector<std::string>& first,
                     const std::vector<std::string>& second,
                     std::function<void(Side&, const std::string&, const std::string&)> body);

 private:
  std::vector<Case> cases_;
};

void add_open_cases(CaseList& list);
void add_data_cases(CaseList& list);
void add_directory_cases(CaseList& list);
void add_rename_cases(CaseList& list);
void add_link_cases(CaseList& list);
void add_attribute_cases(CaseList& list);
void add_identity_cases(CaseList& list);
void add_lock_cases(CaseList& list);

void add_difference_cases(CaseList& list, bool as_root);
void add_permission_cases(CaseList& list);
void add_acl_cases(CaseList& list);

// Returns all cases. Unless `several_users` is true, leaves out the cases in which root acts as several users on files
// that belong to kOwnerId.
CaseList all_cases(bool several_users);

}  // namespace cacheshim::parity
