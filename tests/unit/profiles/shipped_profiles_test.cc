// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "store/profiles/entry_map.h"
#include "store/profiles/profile_check.h"
#include "store/sys/paths.h"

// Tests each shipped profile with paths that the profile's program creates. The rows give each path's entry and name
// class, and whether creating the path may complete the entry.
namespace cacheshim {
namespace {

struct Row {
  const char* path;
  const char* unit;  // the path's unit; "" if there is none
  NameClass name_class;
  const char*
      completing;  // as completing() returns it, for example "rename" if only a rename completes the entry
};

constexpr auto kPrivate = NameClass::kPrivate;
constexpr auto kScratch = NameClass::kScratch;
constexpr auto kLock = NameClass::kLock;
constexpr auto kFlight = NameClass::kFlight;

#define KEY64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define TL "tilelang/0.1.9/linux-x86_64"
#define PIP "pip/http-v2/6/8/7/a/0/687a0abc"
#define FI "flashinfer/0.7.2/90a"
#define HF "huggingface-kernels/kernels--o--n"
#define VLLM "vllm/torch_compile_cache/a1b2c3d4e5/rank_0_0/backbone"
#define VLLM_RANK "vllm/torch_compile_cache/a1b2c3d4e5/rank_0_0"
#define VLLM_AOT "vllm/torch_compile_cache/torch_aot_compile/f00"

constexpr Row kRows[] = {
    // Triton: FileCacheManager.put of 3.x, 2.1 and 2.0
    {"triton/KEY/kernel.cubin", "triton/KEY", kPrivate, ""},
    {"triton/KEY/__grp__kernel.json", "triton/KEY", kFlight, "name"},
    {"triton/KEY/kernel.json", "triton/KEY", kPrivate, "name"},
    {"triton/KEY/cuda_utils.so", "triton/KEY", kFlight, "name"},
    {"triton/KEY/tmp.pid_7_5f3c/kernel.cubin", "triton/KEY", kScratch, ""},
    {"triton/KEY/kernel.cubin.tmp.pid_7_1234", "triton/KEY", kScratch, ""},
    {"triton/KEY/kernel.cubin.tmp", "triton/KEY", kScratch, ""},
    {"triton/KEY/lock", "triton/KEY", kLock, ""},
    {"triton/KEY", "triton/KEY", kPrivate, "rename"},

    // Inductor: write_atomic, FxGraphCache, AOTAutogradCache, CppCodeCache, Triton's cache in a subdirectory
    {"inductor/ab/cabdef.py", "inductor/ab/cabdef.py", kPrivate, "rename"},
    {"inductor/ab/.4711.140022.tmp", "inductor/ab/.4711.140022.tmp", kScratch, ""},
    {"inductor/ab/cabdef.best_config", "inductor/ab/cabdef.best_config", kPrivate, "rename"},
    {"inductor/xy/cxyz.so", "inductor/xy/cxyz.so", kPrivate, "lock inductor/locks/cxyz.lock"},
    {"inductor/xy/cxyz.main.so", "inductor/xy/cxyz.main.so", kPrivate,
     "lock inductor/locks/cxyz.lock"},
    {"inductor/xy/cxyz.so.load_ok", "inductor/xy/cxyz.so.load_ok", kPrivate, "rename"},
    {"inductor/fxgraph/jn/fjnkey/4f2a", "inductor/fxgraph/jn/fjnkey/4f2a", kPrivate, "rename"},
    {"inductor/fxgraph/jn/fjnkey/.7.8.tmp", "inductor/fxgraph/jn/fjnkey/.7.8.tmp", kScratch, ""},
    {"inductor/aotautograd/akey/entry", "inductor/aotautograd/akey/entry", kPrivate, "rename"},
    {"inductor/triton/0/tmp.01234567-89ab-cdef-0123-456789abcdef/__grp__k.json",
     "inductor/triton/0/tmp.01234567-89ab-cdef-0123-456789abcdef", kScratch, "name"},
    {"inductor/triton/0/KEY/tmp.cubin", "inductor/triton/0/KEY", kPrivate, ""},
    {"inductor/xy/cxyz.main_CxxBuild", "inductor/xy/cxyz.main_CxxBuild", kScratch, ""},
    {"inductor/cutedsl_compile_cache/tmpx1.o.tmp", "", kScratch, ""},
    {"inductor/dynamo/code_state_f.pkl.tmp", "", kScratch, ""},
    {"inductor/dynamo/code_state_f.pkl.lock", "", kLock, ""},
    {"inductor/locks/cabdef.lock", "", kLock, ""},
    {"inductor/triton/0/KEY/__grp__k.json", "inductor/triton/0/KEY", kFlight, "name"},
    {"inductor/triton/0/KEY/tmp.pid_1_2/k.ptx", "inductor/triton/0/KEY", kScratch, ""},

    // TileLang: _save_kernel_to_disk, BinaryCache, AutotuneResult, the file that CuTe DSL adds later,
    // and the earlier layouts
    {TL "/kernels/" KEY64, TL "/kernels/" KEY64, kFlight, "rename"},
    {TL "/kernels/" KEY64 "/kernel_lib.so", TL "/kernels/" KEY64, kPrivate, ""},
    {TL "/kernels/" KEY64 "/params.json", TL "/kernels/" KEY64, kPrivate, "rename"},
    {TL "/kernels/" KEY64 "/kernel.cubin", TL "/kernels/" KEY64, kPrivate, "rename"},
    {TL "/kernels/" KEY64 "/kernel.cubin.staging.x1y2", TL "/kernels/" KEY64, kScratch, ""},
    {TL "/kernels/" KEY64 "/.params.json.7_ab.tmp", TL "/kernels/" KEY64, kScratch, ""},
    {TL "/.staging/" KEY64 "_7_ab12cd34/kernel_lib.so", "", kScratch, ""},
    {TL "/autotuner/" KEY64, TL "/autotuner/" KEY64, kPrivate, "rename"},
    {"tilelang/0.1.15/cuda-binaries/" KEY64, "tilelang/0.1.15/cuda-binaries/" KEY64, kPrivate,
     "rename"},
    {"tilelang/0.1.13/cuda-binaries/" KEY64 ".cubin",
     "tilelang/0.1.13/cuda-binaries/" KEY64 ".cubin", kPrivate, "rename"},
    {"tilelang/py-cache/kernel.0123abcd.py", "", kScratch, ""},
    {"tilelang/" KEY64 "/params.pkl", "tilelang/" KEY64, kPrivate, "rename"},
    {TL, "", kPrivate, ""},

    // Torch extensions: _get_build_directory with and without the variable, FileBaton
    {"torch-extensions/py311_cu121/fused/fused.so", "torch-extensions/py311_cu121/fused", kPrivate,
     "lock torch-extensions/py311_cu121/fused/lock"},
    {"torch-extensions/py311_cu121/fused/lock", "torch-extensions/py311_cu121/fused",
     NameClass::kBaton, ""},
    {"torch-extensions/py311_cu121/fused/.ninja_log", "torch-extensions/py311_cu121/fused",
     kPrivate, "end"},
    {"torch-extensions/fused/fused.so", "torch-extensions/fused", kPrivate,
     "lock torch-extensions/fused/lock"},
    {"torch-extensions/fused/lock", "torch-extensions/fused", NameClass::kBaton, ""},
    {"torch-extensions/pylon/pylon.so", "torch-extensions/pylon", kPrivate,
     "lock torch-extensions/pylon/lock"},
    {"torch-extensions/prims/prims.so", "torch-extensions/prims", kPrivate,
     "lock torch-extensions/prims/lock"},
    {"torch-extensions/py311_cu121", "", kPrivate, ""},

    // FlashInfer: JitSpec with the variable and without, CuTe DSL modules, downloads, autotuning
    {"flashinfer/.cache/flashinfer/0.3.1/90a/cached_ops/op/op.so",
     "flashinfer/.cache/flashinfer/0.3.1/90a/cached_ops/op", kPrivate,
     "lock flashinfer/.cache/flashinfer/0.3.1/90a/cached_ops/tmp/op.lock"},
    {"flashinfer/75_80_89/cached_ops/op/build.ninja", "flashinfer/75_80_89/cached_ops/op", kPrivate,
     "end"},
    {FI "/cached_ops/comm/comm.so", FI "/cached_ops/comm", kPrivate, "lock " FI "/cached_ops/tmp/comm.lock"},
    {FI "/cached_ops/cascade/cascade.so", FI "/cached_ops/cascade", kPrivate,
     "lock " FI "/cached_ops/tmp/cascade.lock"},
    {FI "/cached_ops/kda_ptx", "", kPrivate, ""},
    {FI "/cached_ops/cake_gdn", "", kPrivate, ""},
    {FI "/cached_ops/_flash_kda_nvrtc_cubins", "", kPrivate, ""},
    {FI "/cached_ops/tmp/op.lock", FI "/cached_ops/tmp", kLock, ""},
    {FI "/cached_ops/tmp/flashinfer_jit.lock", FI "/cached_ops/tmp", kScratch, ""},
    {FI "/cached_ops/tmp/flashinfer_jit.ninja", FI "/cached_ops/tmp", kScratch, ""},
    {FI "/cached_ops/mm_90a_cute_dsl/meta.json", FI "/cached_ops/mm_90a_cute_dsl", kPrivate,
     "rename"},
    {FI "/cached_ops/mm_90a_cute_dsl/k.o", FI "/cached_ops/mm_90a_cute_dsl", kPrivate, "rename"},
    {FI "/cached_ops/mm_90a_cute_dsl/k.o.tmp.7", FI "/cached_ops/mm_90a_cute_dsl", kScratch, ""},
    {FI "/cached_ops/_flash_kda_nvrtc_cubins/a.cubin",
     FI "/cached_ops/_flash_kda_nvrtc_cubins/a.json", kPrivate, "rename"},
    {FI "/cached_ops/cake_gdn/90a/x.cubin", FI "/cached_ops/cake_gdn/90a/x.cubin", kPrivate,
     "rename"},
    {FI "/generated/op/op.cu", FI "/generated/op/op.cu", kPrivate, "name"},
    {"flashinfer/cubins/ab/fmha.cubin", "flashinfer/cubins/ab/fmha.cubin", kPrivate, "rename"},
    {"flashinfer/cubins/ab/fmha.cubin.lock", "flashinfer/cubins/ab/fmha.cubin.lock", kScratch, ""},
    {"flashinfer/autotune/v2/ENV/entries/h.json", "flashinfer/autotune/v2/ENV/entries/h.json",
     kPrivate, "rename"},
    {"flashinfer/75_80_89/flashinfer_jit.log", "", kScratch, ""},

    // DeepGEMM: Compiler::build, and put() of the Python versions
    {"deepgemm/cache/kernel.gemm.0123", "deepgemm/cache/kernel.gemm.0123", kFlight, "rename"},
    {"deepgemm/cache/kernel.gemm.0123/kernel.cubin", "deepgemm/cache/kernel.gemm.0123", kFlight,
     "rename"},
    {"deepgemm/cache/kernel.gemm.0123/kernel.cu", "deepgemm/cache/kernel.gemm.0123", kFlight, ""},
    {"deepgemm/tmp/5e1f/kernel.cubin", "", kScratch, ""},

    // vLLM: AOT models, CompilerManager without AOT, the smaller caches
    {VLLM "/vllm_compile_cache.py", VLLM_RANK, kPrivate, "end"},
    {VLLM "/triton_cache/KEY/k.cubin", VLLM_RANK, kPrivate, "end"},
    {VLLM "/triton_cache/KEY/tmp.pid_1_2/k", VLLM_RANK, kScratch, ""},
    {VLLM "/inductor_cache/ab/.1.2.tmp", VLLM_RANK, kScratch, ""},
    {VLLM "/inductor_cache/locks/x", VLLM_RANK, kScratch, ""},
    {VLLM "/cache_key_factors.json", VLLM_RANK, kScratch, ""},
    {VLLM_AOT "/rank_0_0/model", VLLM_AOT "/rank_0_0", kPrivate, "rename"},
    {VLLM_AOT "/rank_0_0/model.7.tmp", VLLM_AOT "/rank_0_0", kScratch, ""},
    {VLLM_AOT "/inductor_cache/fxgraph/ab/fab/1", VLLM_AOT "/inductor_cache/fxgraph/ab/fab/1",
     kPrivate, "rename"},
    {"vllm/torch_compile_cache/torch_aot_compile", "", kPrivate, ""},
    {"vllm/modelinfos/llama.json", "vllm/modelinfos/llama.json", kPrivate, "rename"},
    {"vllm/gpu_p2p_access_cache_for_0,1.json", "", kScratch, ""},

    // comgr: CacheCommand
    {"comgr/llvmcache-0a1b", "comgr/llvmcache-0a1b", kPrivate, "rename"},
    {"comgr/amdgpu-compiler-0a1b2c.tmp.o", "", kScratch, ""},
    // CuTe DSL (cache_helpers.py): save_ir, pyir_class_facts; Helion: _persist_to_disk, LocalAutotuneCache
    {"cutedsl/cute_dsl_0a1b.mlir", "cutedsl/cute_dsl_0a1b.json", kPrivate, "rename"},
    {"cutedsl/cute_dsl_0a1b.json", "cutedsl/cute_dsl_0a1b.json", kPrivate, "rename"},
    {"cutedsl/cute_dsl_0a1b.json.tmp.7", "", kScratch, ""},
    {"cutedsl/tmp.pid_7_5f3c/cute_dsl_0a1b.mlir", "", kScratch, ""},
    {"cutedsl/pyir_class_facts/0a1b.v3.facts", "cutedsl/pyir_class_facts/0a1b.v3.facts", kPrivate,
     "rename"},
    {"cutedsl/pyir_class_facts/tmpx1y2.tmp", "cutedsl/pyir_class_facts/tmpx1y2.tmp", kScratch, ""},
    {"inductor/helion/cute/0/cute_dsl_0a1b.json", "inductor/helion/cute/0/cute_dsl_0a1b.json",
     kPrivate, "rename"},
    {"inductor/helion/0a1b.best_config", "inductor/helion/0a1b.best_config", kPrivate, "rename"},
    {"inductor/helion/triton/0/KEY/__grp__k.json", "inductor/helion/triton/0/KEY", kFlight, "name"},

    {"tensorrt-rtx/runtime.rtxcache", "", NameClass::kShared, ""},
    {"tensorrt-rtx/runtime.rtxcache.lock", "", kLock, ""},

    // sccache: LruDiskCache.prepare_add and commit
    {"sccache/8/2/" KEY64, "sccache/8/2/" KEY64, kPrivate, "rename"},
    {"sccache/preprocessor/3/d/7/" KEY64, "sccache/preprocessor/3/d/7/" KEY64, kPrivate, "rename"},
    {"sccache/.sccachetmpx1y2z3", "", kScratch, ""},

    // Hugging Face kernels: _hf_hub_download_to_cache_dir, _chmod_and_move, write_tree_cache,
    // _cache_commit_hash_for_specific_revision
    {HF "/blobs/0a1b", HF "/blobs/0a1b", kPrivate, "rename"},
    {HF "/blobs/0a1b.c2d3e4f5.incomplete", HF "/blobs/0a1b.c2d3e4f5.incomplete", kScratch, ""},
    {HF "/blobs/tmp_01234567-89ab-cdef-0123-456789abcdef",
     HF "/blobs/tmp_01234567-89ab-cdef-0123-456789abcdef", kScratch, ""},
    {HF "/snapshots/f00/build/torch-cpu/__init__.py",
     HF "/snapshots/f00/build/torch-cpu/__init__.py", kPrivate, "rename"},
    {HF "/snapshots/f00/build/torch-cpu/__pycache__/x.pyc",
     HF "/snapshots/f00/build/torch-cpu/__pycache__/x.pyc", kScratch, ""},
    {HF "/trees/f00.json", HF "/trees/f00.json", kPrivate, "rename"},
    {HF "/trees/tmpx1y2z3w4.tmp", HF "/trees/tmpx1y2z3w4.tmp", kScratch, ""},
    {HF "/refs/main", "", NameClass::kShared, ""},
    {HF "/refs/main.0a1b2c3d.tmp", "", NameClass::kShared, ""},
    {"huggingface-kernels/.locks/kernels--o--n/0a1b.lock", "", kLock, ""},
    {"huggingface-kernels/tmpx1y2z3w4", "", kScratch, ""},

    {"cuda-compute-cache/index", "", kPrivate, ""},  // the profile is a guess
    {"cuda-compute-cache/0/a/0a1b2c", "cuda-compute-cache/0/a/0a1b2c", kPrivate, "end"},

    // pip: SafeFileCache of 25.3 and 23.2, adjacent_tmp_file, record_download_origin
    {PIP, PIP ".body", kPrivate, "rename"},
    {PIP ".body", PIP ".body", kPrivate, "rename"},
    {PIP "x1y2z3.tmp", PIP "x1y2z3.tmp.body", kScratch, ""},
    {"pip/http/6/8/7/a/0/687a0abc", "pip/http/6/8/7/a/0/687a0abc", kPrivate, "rename"},
    {"pip/wheels/2a/4b/6c/8d9e/six-1.0-py3-none-any.whl", "pip/wheels/2a/4b/6c/8d9e", kPrivate, ""},
    {"pip/wheels/2a/4b/6c/8d9e/origin.json", "pip/wheels/2a/4b/6c/8d9e", kPrivate, "name"},
    {"pip/selfcheck/0a1b", "", kScratch, ""},

    // uv: Cache::persist, write_atomic, LockedFile
    {"uv/archive-v0/Ab3dEf", "uv/archive-v0/Ab3dEf", kPrivate, "rename"},
    {"uv/archive-v0/Ab3dEf/six.py", "uv/archive-v0/Ab3dEf", kPrivate, ""},
    {"uv/.tmpAb12Cd/six.py", "", kScratch, ""},
    {"uv/wheels-v5/pypi/six/1.0-py3-none-any", "uv/wheels-v5/pypi/six/1.0-py3-none-any", kPrivate,
     "rename"},
    {"uv/wheels-v5/pypi/six/1.0-py3-none-any.http", "uv/wheels-v5/pypi/six/1.0-py3-none-any.http",
     kPrivate, "rename"},
    {"uv/wheels-v5/pypi/six/.tmpXy12Zw", "uv/wheels-v5/pypi/six/.tmpXy12Zw", kScratch, ""},
    {"uv/wheels-v8/pypi/six/1.0-py3-none-any.lock", "uv/wheels-v8/pypi/six/1.0-py3-none-any.lock",
     kLock, ""},
    {"uv/wheels-v8/index/0a1b2c3d/six/1.0-py3-none-any.lock",
     "uv/wheels-v8/index/0a1b2c3d/six/1.0-py3-none-any.lock", kLock, ""},
    {"uv/simple-v16/pypi/six.rkyv", "uv/simple-v16/pypi/six.rkyv", kPrivate, "rename"},
    {"uv/sdists-v9/pypi/six/1.0/rev/src/setup.py", "uv/sdists-v9/pypi/six/1.0", kPrivate, "end"},
    {"uv/sdists-v9/pypi/six/1.0/.lock", "uv/sdists-v9/pypi/six/1.0", kScratch, ""},
    {"uv/sdists-v11/pypi/six/1.0/rev/1.0-py3-none-any.lock", "uv/sdists-v11/pypi/six/1.0", kScratch,
     ""},
    {"uv/sdists-v11/index/0a1b/six/1.0/rev/1.0-py3-none-any.lock",
     "uv/sdists-v11/index/0a1b/six/1.0", kScratch, ""},
    {"uv/sdists-v11/index/0a1b/six/1.0/rev/src/Cargo.lock", "uv/sdists-v11/index/0a1b/six/1.0",
     kPrivate, "end"},
    {"uv/sdists-v11/url/0a1b/rev/1.0-py3-none-any.lock", "uv/sdists-v11/url/0a1b", kScratch, ""},
    {"uv/sdists-v9/git/0a1b/2c3d/src/setup.py", "", kScratch, ""},
    {"uv/archive-v0/Ab3dEf/Cargo.lock", "uv/archive-v0/Ab3dEf", kPrivate, ""},
    {"uv/.lock", "", kPrivate, ""},

    // ccache: LocalStorage, AtomicFile, LockFile
    {"ccache/0/a/bcdefR", "ccache/0/a/bcdefR", kPrivate, "rename"},
    {"ccache/0/abcdefM", "ccache/0/abcdefM", kPrivate, "rename"},
    {"ccache/0/a/bcdefR.tmp.Ab12Cd", "", kScratch, ""},
    {"ccache/0/a/stats", "", kScratch, ""},
    {"ccache/0/stats.lock", "", kScratch, ""},
    {"ccache/tmp/cpp_stdout.tmp.1", "", kScratch, ""},

    // JAX: LRUCache.put of 0.4.38, and its predecessor without the two suffixes
    {"jax/jit_f-0123-cache", "jax/jit_f-0123-cache", kPrivate, "end"},
    {"jax/jit_f-0123-atime", "jax/jit_f-0123-cache", kPrivate, "end"},
    {"jax/jit_f-0123", "jax/jit_f-0123", kPrivate, "end"},
    {"jax/.lockfile", "jax/.lockfile", kScratch, ""},
    {"jax/xla_gpu_per_fusion_autotune_cache_dir/aGFzaA.textproto",
     "jax/xla_gpu_per_fusion_autotune_cache_dir/aGFzaA.textproto", kPrivate, "rename"},
    {"jax/xla_gpu_per_fusion_autotune_cache_dir/tmp/tmp_per_fusion_cache_7.textproto", "", kScratch,
     ""},

    // Numba: IndexDataCacheFile
    {"numba/src_0a1b/mod.f-3.py311.nbi", "numba/src_0a1b", kPrivate, "end"},
    {"numba/src_0a1b/mod.f-3.py311.1.nbc", "numba/src_0a1b", kPrivate, "end"},
    {"numba/src_0a1b/mod.f-3.py311.1.nbc.tmp.0123456789abcdef", "numba/src_0a1b", kScratch, ""},

    // CuPy: _compile_with_cache_cuda
    {"cupy/0123456789abcdef_2.cubin", "cupy/0123456789abcdef_2.cubin", kPrivate, "rename"},
    {"cupy/0123456789abcdef_2.cubin.cu", "cupy/0123456789abcdef_2.cubin.cu", kPrivate, "end"},
    {"cupy/tmpa1b2c3d4", "cupy/tmpa1b2c3d4", kScratch, ""},
};

// Returns the lock file under which the entry is built: the rule's `built_under`, with the entry's name up to the first
// '.' instead of the '*'. Returns "of another name" if the rule does not accept this lock file.
std::string lock_of(const EntryRef& ref) {
  const std::string_view entry = ref.entry.substr(ref.profile->name.size() + 1);
  std::string lock = ref.rule->built_under;
  const std::string_view name = base_name(entry);
  lock.replace(lock.find('*'), 1, name.substr(0, name.find('.')));
  if (lock.starts_with("./")) lock = join_path(parent_path(entry), lock.substr(2));
  return ref.rule->is_built_under(lock, entry) ? ref.profile->name + '/' + lock : "of another name";
}

std::string completing(const EntryRef& ref, const std::string& path, NameClass name_class) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const bool completes = ref.rule->completes(name) || ref.rule->completes_alone(name);
  const bool beside =
      name_class == kScratch || name_class == kLock || name_class == NameClass::kBaton;
  if (beside) return completes && name_class == kScratch ? "name" : "";
  if (!ref.rule->built_under.empty()) return completes ? "lock " + lock_of(ref) : "end";
  if (!ref.rule->says_when_complete() || !ref.profile->may_publish_early()) return "end";
  if (ref.is_entry_directory()) return "rename";
  if (!ref.rule->is_directory() && ref.rule->needs_no_name()) return "rename";
  if (!completes) return "";
  return ref.rule->renamed ? "rename" : "name";
}

class Shipped : public testing::Test {
 protected:
  const ProfileSet set_ = load_profiles({SHIPPED_PROFILES});
  const EntryMap entries_{set_.profiles};
};

TEST_F(Shipped, TheProfilesHaveNoFindings) {
  for (const Profile& profile : set_.profiles) {
    for (const std::string& finding : check_profile(profile.origin)) ADD_FAILURE() << finding;
  }
}

TEST_F(Shipped, AllProfilesAreRead) {
  for (const ProfileError& refused : set_.refused) ADD_FAILURE() << refused.message;
  std::vector<std::string> names;
  for (const Profile& profile : set_.profiles) names.push_back(profile.name);
  const std::vector<std::string> expected = {"ccache",
                                             "comgr",
                                             "cuda-compute-cache",
                                             "cupy",
                                             "cutedsl",
                                             "deepgemm",
                                             "flashinfer",
                                             "huggingface-kernels",
                                             "inductor",
                                             "jax",
                                             "numba",
                                             "pip",
                                             "sccache",
                                             "tensorrt-rtx",
                                             "tilelang",
                                             "torch-extensions",
                                             "triton",
                                             "uv",
                                             "vllm"};
  EXPECT_EQ(names, expected);
}

TEST_F(Shipped, PathsOfEachProgramHaveTheirEntryAndClass) {
  for (const Row& row : kRows) {
    const std::string path = row.path;
    const auto ref = entries_.find(path);
    EXPECT_EQ(ref ? ref->unit() : "", row.unit) << path;
    const NameClass name_class = entries_.class_of(path);
    EXPECT_EQ(to_string(name_class), to_string(row.name_class)) << path;
    EXPECT_EQ(ref ? completing(*ref, path, name_class) : "", row.completing) << path;
  }
}

TEST_F(Shipped, EachProfileHasARowInTheTable) {
  for (const Profile& profile : set_.profiles) {
    EXPECT_TRUE(std::any_of(std::begin(kRows), std::end(kRows), [&](const Row& row) {
      return std::string(row.path).starts_with(profile.name + "/");
    })) << profile.name;
  }
}

}  // namespace
}  // namespace cacheshim
