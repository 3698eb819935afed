#!/usr/bin/env bash
# The tests on an emulated processor that has AVX2 and nothing wider, then a whole engine that generates there (a tiny model whose
# greedy tokens are transformers'). Needs qemu-user-static. Formats whose scales are subnormal halves are left out: QEMU flushes
# those when denormals are off, processors do not.
set -euo pipefail
cd "$(dirname "$0")"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
haswell() { qemu-x86_64-static -cpu Haswell "$@" 2>&1 | { grep -v "TCG doesn.t support" || true; }; }
${GO:-go} test -c -o "$bin/cpu.test" .
haswell "$bin/cpu.test" -test.v -test.run '(EveryLevel.*|Sampling.*)/avx2|(Fused.*)/avx2/(Q4_1|Q8_0|F32)'
${GO:-go} test -c -o "$bin/stages.test" ../../stages
cd ../../stages
haswell "$bin/stages.test" -test.v -test.run 'TestGreedyTokensAreTheReferences/.*_on_cpu,_(alone|crowd)'
