package scheduler

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// The speed of large steps rests on how many cache lines a request touches.
func TestHotRecordsFillWholeCacheLines(t *testing.T) {
	require.EqualValues(t, 128, unsafe.Sizeof(seq{}))
	require.EqualValues(t, 64, unsafe.Offsetof(seq{}.tokens))
	require.EqualValues(t, 64, unsafe.Sizeof(bucket{}))
	require.Zero(t, unsafe.Sizeof(Row{})%64)
	require.LessOrEqual(t, unsafe.Offsetof(Row{}.ID), uintptr(64))
	require.EqualValues(t, 128, unsafe.Offsetof(cold{}.id))
}
