# serving.sh is sourced by scripts that test the real binary with a real model: a folder and processes that end with the script.
work=$(mktemp -d)
pids=()
finish() {
	for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
	rm -rf "$work"
}
trap finish EXIT

model=${OMNI_MODEL_SMOLLM2:-$(scripts/model.sh | tail -n 1)}
cache=${OMNI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/omni-engine}

# python_with NAME MODULE PACKAGE...: $venv is then an environment that can import the module.
python_with() {
	venv=$cache/venv-$1
	"$venv/bin/python" -c "import $2" 2>/dev/null && return
	python3 -m venv "$venv"
	"$venv/bin/pip" install -q "${@:3}"
}

# serve NAME FLAG...: serves the model; its process is ${pids[-1]}, its port is then in $work/NAME.port, its log in $work/NAME.log.
serve() {
	local name=$1
	shift
	"${OMNI_BIN:-bin/omni-engine}" serve "$model" --served-model-name smollm2 --host 127.0.0.1 --port 0 --port-file "$work/$name.port" "$@" >"$work/$name.log" 2>&1 &
	pids+=($!)
	for _ in $(seq 300); do
		[ -s "$work/$name.port" ] && return
		kill -0 "${pids[-1]}" 2>/dev/null || { cat "$work/$name.log"; exit 1; }
		sleep 0.1
	done
}
