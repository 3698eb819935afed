#!/bin/sh
# The tests on an emulated processor that has AVX2 and nothing wider. Needs qemu-user-static. Formats whose scales are subnormal
# halves are left out: QEMU flushes those when denormals are off, processors do not.
set -eu
cd "$(dirname "$0")"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
${GO:-go} test -c -o "$bin/cpu.test" .
qemu-x86_64-static -cpu Haswell "$bin/cpu.test" -test.v -test.run '(EveryLevel.*|Sampling.*)/avx2|(Fused.*)/avx2/(Q4_1|Q8_0|F32)' 2>&1 | grep -v 'TCG doesn.t support'
