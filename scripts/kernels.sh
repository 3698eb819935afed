#!/usr/bin/env bash
# Compiles kernels/gpu/src with a pinned nvcc, which needs no GPU, into kernels/gpu/kernels.fatbin, which the binary embeds.
#
#   scripts/kernels.sh          compile what changed: kernels.fatbin, testdata/gates.tsv (registers, spills, instructions of every
#                               kernel and architecture) and kernels.sum (hashes of the sources and of the result)
#   scripts/kernels.sh check    compare the hashes, and compile only if the sources are others than those of the result
#
# The toolchain comes from PyPI wheels of fixed versions into ${OMNI_CACHE:-~/.cache/omni-engine}/cuda-VERSION, or from the folder
# that OMNI_CUDA_TOOLCHAIN names (one that has bin/nvcc). Cubins are cached there by the hash of the sources. NVIDIA's
# tools are used to build only; nothing of them goes into the repository or a binary but the code that they generate.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

say() { printf 'kernels.sh: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

version=13.0.88
wheels=(nvidia-cuda-nvcc==$version nvidia-nvvm==$version nvidia-cuda-crt==$version nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
	nvidia-cuda-nvdisasm==13.5.37)
# The kernels use no instruction of one architecture alone (the "a" variants, whose code runs nowhere else), so one PTX serves all.
archs=(80 89 90 100 120)
flags=(-std=c++17 -O3 -arch=compute_80)
dir=kernels/gpu
sum=$dir/kernels.sum

sources() { (cd $dir && cat src/*.cu src/*.cuh src/*.h | sha256sum | cut -d' ' -f1); }
settings() { printf '%s\n' "$version" "${archs[*]}" "${flags[*]}" | sha256sum | cut -c1-16; }
recorded() { sed -n "s/^$1 //p" $sum 2>/dev/null; }

fresh() {
	[[ -f $dir/kernels.fatbin && $(recorded sources) == $(sources) && $(recorded settings) == $(settings) &&
		$(recorded fatbin) == $(sha256sum $dir/kernels.fatbin | cut -d' ' -f1) && $(recorded gates) == $(sha256sum $dir/testdata/gates.tsv | cut -d' ' -f1) ]]
}

if fresh; then
	say "kernels.fatbin is of these sources"
	exit 0
fi
[[ ${1:-} != check || -n ${OMNI_KERNELS_COMPILE:-} ]] || die "kernels.fatbin, gates.tsv and the sources do not belong together: run make kernels and commit the result"

cache=${OMNI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omni-engine}
tools=${OMNI_CUDA_TOOLCHAIN:-$cache/cuda-$version/nvidia/cu13}
if [[ ! -x $tools/bin/nvcc ]]; then
	[[ -z ${OMNI_CUDA_TOOLCHAIN:-} ]] || die "OMNI_CUDA_TOOLCHAIN: there is no bin/nvcc in $OMNI_CUDA_TOOLCHAIN"
	command -v python3 >/dev/null || die "python3 and its pip fetch the pinned compiler; or set OMNI_CUDA_TOOLCHAIN"
	say "fetching nvcc $version (110 MB)"
	part=$(mktemp -d)
	trap 'rm -rf "$part"' EXIT
	python3 -m pip download -q --no-deps --only-binary :all: -d "$part" "${wheels[@]}" || die "the wheels cannot be fetched: ${wheels[*]}"
	mkdir -p "$cache/cuda-$version"
	for w in "$part"/*.whl; do python3 -m zipfile -e "$w" "$cache/cuda-$version"; done
	chmod +x "$tools"/bin/* "$tools"/nvvm/bin/*
fi
command -v g++ >/dev/null || die "nvcc needs g++"

hash=$(sources)
out=$cache/kernels/$hash-$(settings)
mkdir -p "$out"
ptx=$out/80.ptx
if [[ ! -f $ptx ]]; then
	say "compiling to PTX"
	"$tools/bin/nvcc" "${flags[@]}" -ptx -o "$ptx.part" $dir/src/kernels.cu || die "nvcc failed"
	mv "$ptx.part" "$ptx"
fi
assemble() { # arch
	[[ -f $out/$1.cubin && -f $out/$1.log ]] && return
	say "assembling for sm_$1"
	"$tools/bin/ptxas" -O3 -v -arch=sm_"$1" -o "$out/$1.part" "$ptx" >"$out/$1.log.part" 2>&1 || {
		cat "$out/$1.log.part" >&2
		return 1
	}
	mv "$out/$1.log.part" "$out/$1.log"
	mv "$out/$1.part" "$out/$1.cubin"
}
running=0
for a in "${archs[@]}"; do
	assemble "$a" &
	if ((++running >= ${JOBS:-2})); then
		wait -n || die "ptxas failed"
		((running--)) || true
	fi
done
while ((running-- > 0)); do wait -n || die "ptxas failed"; done

images=(--image3=kind=ptx,sm=80,file="$ptx")
for a in "${archs[@]}"; do images+=(--image3=kind=elf,sm="$a",file="$out/$a.cubin"); done
"$tools/bin/fatbinary" -64 --compress-all --compress-mode=size --create="$out/kernels.fatbin" "${images[@]}"

mkdir -p $dir/testdata
python3 scripts/kernel-gates.py "$tools/bin/nvdisasm" "$out" "${archs[@]}" >"$out/gates.tsv"
cp "$out/kernels.fatbin" $dir/kernels.fatbin
cp "$out/gates.tsv" $dir/testdata/gates.tsv
{
	echo "sources $hash"
	echo "settings $(settings)"
	echo "nvcc $version"
	echo "fatbin $(sha256sum $dir/kernels.fatbin | cut -d' ' -f1)"
	echo "gates $(sha256sum $dir/testdata/gates.tsv | cut -d' ' -f1)"
} >$sum
say "kernels.fatbin: $(stat -c %s $dir/kernels.fatbin) bytes for ${archs[*]} and PTX"
