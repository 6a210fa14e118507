// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/case_list.h"

#include <algorithm>

namespace cacheshim::parity {
namespace {

std::string as_file_name(std::string name) {
  std::replace(name.begin(), name.end(), '/', '+');
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

}  // namespace

void CaseList::add(std::string name, std::vector<std::string> names,
                   std::function<void(Side&)> body) {
  cases_.push_back({as_file_name(std::move(name)), std::move(names), std::move(body)});
}

void CaseList::add_for_each(const std::string& operation, const std::vector<std::string>& names,
                            std::function<void(Side&, const std::string&)> body) {
  for (const std::string& name : names) {
    add(operation + " " + name, {name}, [body, name](Side& side) { body(side, name); });
  }
}

void CaseList::add_for_pairs(
    const std::string& operation, const std::vector<std::string>& first,
    const std::vector<std::string>& second,
    std::function<void(Side&, const std::string&, const std::string&)> body) {
  for (const std::string& one : first) {
    for (const std::string& two : second) {
      add(operation + " " + one + " to " + two, {one, two},
          [body, one, two](Side& side) { body(side, one, two); });
    }
  }
}

CaseList all_cases(bool several_users) {
  CaseList list;
  add_open_cases(list);
  add_data_cases(list);
  add_directory_cases(list);
  add_rename_cases(list);
  add_link_cases(list);
  add_attribute_cases(list);
  add_identity_cases(list);
  add_lock_cases(list);
  add_difference_cases(list, several_users);
  if (several_users) {
    add_permission_cases(list);
    add_acl_cases(list);
  }
  return list;
}

}  // namespace cacheshim::parity
