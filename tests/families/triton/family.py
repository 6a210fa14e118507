# SPDX-License-Identifier: Apache-2.0
import pathlib

from family import BUILDS, REPOSITORY, VENVS, Family, version_in_venv

# The directories of ptxas in Triton's package: in 3.0 and later, and in earlier versions.
BUNDLED_NVIDIA = "backends/nvidia/bin"
BUNDLED_CUDA = "third_party/cuda/bin"


def family_of(variant: str, ptxas: str, variable: str = "TRITON_PTXAS_PATH",
              most_builds: int = 4, most_later_builds: int = 0) -> Family:
    """Returns the family of the Triton version `variant`, or of the newest version if `variant` is "". `ptxas` is the
    path of ptxas in Triton's package, and `variable` is the environment variable that makes Triton run a wrapper
    instead."""
    venv = "-".join(filter(None, ("triton", variant)))
    package = next((VENVS / venv).glob("lib/python3*/site-packages/triton"), pathlib.Path("missing"))
    return Family(
        title="Triton {version}", directory=pathlib.Path(__file__).parent, variant=variant,
        newest_python=(3, 11) if variant else None, profile="triton", variable="TRITON_CACHE_DIR",
        python=VENVS / venv / "bin/python", version=version_in_venv(venv, "triton"), steps=4,
        is_long=True,
        # The wrapper records a build for each run of ptxas.
        environment={variable: str(REPOSITORY / "tests/storm/ptxas-wrapper"),
                     "STORM_PTXAS": str(package / ptxas), "STORM_PTXAS_LOG": BUILDS},
        most_builds=most_builds, most_later_builds=most_later_builds)


FAMILIES = [family_of("", f"{BUNDLED_NVIDIA}/ptxas-blackwell", "TRITON_PTXAS_BLACKWELL_PATH"),
            family_of("3.0.0", f"{BUNDLED_NVIDIA}/ptxas"),
            family_of("2.1.0", f"{BUNDLED_CUDA}/ptxas"),
            # Publishing changes the ctime, and Triton 2.0.0 rejects files with a changed ctime. So the profile does not
            # publish its kernels, and each job builds its own.
            family_of("2.0.0", f"{BUNDLED_CUDA}/ptxas", most_builds=16, most_later_builds=4)]
