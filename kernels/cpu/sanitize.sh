#!/bin/sh
# One vector level under AddressSanitizer and UndefinedBehaviorSanitizer (CPU_LEVEL, by default avx2): kernels against the
# reference and the sampler. Needs gcc's sanitizer libraries.
set -eu
cd "$(dirname "$0")"
level=${CPU_LEVEL:-avx2}
export CGO_CFLAGS="-O1 -g -fsanitize=undefined -fno-sanitize-recover=undefined -fno-sanitize=alignment" CGO_LDFLAGS="-fsanitize=undefined"
exec ${GO:-go} test -asan -count=1 -run "(EveryLevel.*|Fused.*|Sampling.*)/$level" .
