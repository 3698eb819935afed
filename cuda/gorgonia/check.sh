#!/usr/bin/env bash
# Builds, vets and tests the driver on gorgonia.org/cu (-tags gorgoniacu) over the software device. It needs CUDA's header alone:
# OMNI_CUDA_INCLUDE names its folder, or it comes from NVIDIA's pinned wheel, into the user's cache.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=13.0.96
include=${OMNI_CUDA_INCLUDE:-}
if [ -z "$include" ]; then
	include=${XDG_CACHE_HOME:-$HOME/.cache}/omni-engine/cuda-headers-$version
	if [ ! -f "$include/cuda.h" ]; then
		work=$(mktemp -d)
		trap 'rm -rf "$work"' EXIT
		python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "nvidia-cuda-runtime==$version"
		python3 - "$work" "$include" <<-'PY'
			import glob, os, sys, zipfile
			work, include = sys.argv[1:]
			os.makedirs(include, exist_ok=True)
			with zipfile.ZipFile(glob.glob(work + "/*.whl")[0]) as z:
			    for name in z.namelist():
			        if os.path.basename(name) == "cuda.h":
			            with open(include + "/cuda.h", "wb") as f:
			                f.write(z.read(name))
		PY
	fi
fi

make -s -C cuda/sim driver fixtures
sim=$PWD/build/sim
ln -sf libcuda.so.1 "$sim/libcuda.so"
# The package names functions that the software device lacks and no test calls: they stay unresolved.
export CGO_CFLAGS="-O1 -I$PWD/cuda/gorgonia -I$include"
export CGO_LDFLAGS="-L$sim -lcuda -Wl,--unresolved-symbols=ignore-all -Wl,-z,lazy"
export LD_LIBRARY_PATH="$sim"
go vet -tags gorgoniacu ./cuda
OMNI_SIM=require go test -count=1 -tags gorgoniacu ./cuda
