// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/cuda/client.h"

namespace cacheshim::test {
namespace {

constexpr unsigned kWatchdogSeconds = 60;
constexpr int kDeadlock = 3;
constexpr int kDriverError = 2;

void bite(int) { ::_exit(4); }

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %u\n", what, static_cast<unsigned>(result));
  std::exit(kDriverError);
}

CUfunction load_tail(const Api& api, const Scenario& scenario) {
  std::ostringstream text;
  text << std::ifstream(scenario.image_file).rdbuf();
  const std::string image = text.str();
  const char* const path = scenario.image_file.c_str();
  const char* const data = image.c_str();
  const std::string& load = scenario.load;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  CUfunction function = nullptr;
  if (load == "cuModuleLoad") check(api.cuModuleLoad(&module, path), "load");
  if (load == "cuModuleLoadData") check(api.cuModuleLoadData(&module, data), "load");
  if (load == "cuModuleLoadDataEx") {
    check(api.cuModuleLoadDataEx(&module, data, 0, nullptr, nullptr), "load");
  }
  if (load == "cuModuleLoadFatBinary") check(api.cuModuleLoadFatBinary(&module, data), "load");
  if (load == "cuLibraryLoadData") {
    check(api.cuLibraryLoadData(&library, data, nullptr, nullptr, 0, nullptr, nullptr, 0), "load");
  }
  if (load == "cuLibraryLoadFromFile") {
    check(api.cuLibraryLoadFromFile(&library, path, nullptr, nullptr, 0, nullptr, nullptr, 0),
          "load");
  }
  if (library != nullptr) {
    CUkernel kernel = nullptr;
    check(api.cuLibraryGetKernel(&kernel, library, "tail"), "cuLibraryGetKernel");
    check(api.cuKernelGetFunction(&function, kernel), "cuKernelGetFunction");
  } else {
    check(api.cuModuleGetFunction(&function, module, "tail"), "cuModuleGetFunction");
  }
  return function;
}

void launch(const Api& api, CUfunction function) {
  check(api.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), "launch");
}

// Launches the spin kernel, then the tail kernel, and then a copy that ends the spin kernel. If the tail kernel is not
// loaded yet, the copy waits for the lock that the load of the tail kernel holds, and the load waits for the end of the
// spin kernel. Returns kDeadlock in this case, otherwise 0.
int spin_and_release(const Api& api, CUfunction tail) {
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  check(api.cuModuleLoadData(&module, "spin"), "cuModuleLoadData");
  check(api.cuModuleGetFunction(&spin, module, "spin"), "cuModuleGetFunction");
  check(api.cuFuncLoad(spin), "cuFuncLoad");
  launch(api, spin);
  api.fake_wait_for_launches(1);
  std::thread second([&] { launch(api, tail); });
  api.fake_wait_for_launches(2);
  int word = 0;
  const int one = 1;
  check(api.cuMemcpyHtoDAsync_v2(reinterpret_cast<CUdeviceptr>(&word), &one, sizeof one, nullptr),
        "copy");
  second.join();
  return api.fake_spin_timed_out() != 0 ? kDeadlock : 0;
}

}  // namespace

Scenario read_scenario(int argc, char** argv) {
  Scenario scenario;
  if (argc > 0) scenario.load = argv[0];
  if (argc > 1) scenario.image_file = argv[1];
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--no-spin") == 0) scenario.spins = false;
    if (std::strcmp(argv[i], "--set") == 0 && i + 1 < argc) scenario.set_mode = argv[i + 1];
  }
  return scenario;
}

int run_scenario(const Api& api, const Scenario& scenario) {
  ::signal(SIGALRM, bite);
  ::alarm(kWatchdogSeconds);
  if (!scenario.set_mode.empty()) ::setenv("CUDA_MODULE_LOADING", scenario.set_mode.c_str(), 1);
  check(api.cuInit(0), "cuInit");
  CUmoduleLoadingMode mode{};
  check(api.cuModuleGetLoadingMode(&mode), "cuModuleGetLoadingMode");
  std::printf("mode=%s\n", mode == CU_MODULE_EAGER_LOADING ? "EAGER" : "LAZY");
  // With dlmopen, stdout belongs to another copy of libc, which does not flush it at exit.
  std::fflush(stdout);
  CUcontext context = nullptr;
  check(api.cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
  const CUfunction tail = load_tail(api, scenario);
  return scenario.spins ? spin_and_release(api, tail) : 0;
}

}  // namespace cacheshim::test
