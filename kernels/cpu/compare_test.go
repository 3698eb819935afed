//go:build cgo && linux && amd64

package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/kernels"
	"omni-engine/kernels/cpu"
	"omni-engine/kernels/kerneltest"
	"omni-engine/kernels/ref"
)

func open(t testing.TB, o cpu.Options) kernels.Device {
	d, err := cpu.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestEveryLevelAgreesWithTheReference(t *testing.T) {
	for _, level := range cpu.Levels() {
		t.Run(level, func(t *testing.T) {
			kerneltest.Compare(t, open(t, cpu.Options{Threads: 2, Level: level}), ref.Open(ref.Options{Threads: 1}), kerneltest.Exact())
		})
	}
}
