// SPDX-License-Identifier: Apache-2.0
extern "C" [[gnu::visibility("default")]] int only_for_the_plugin() { return 7; }
