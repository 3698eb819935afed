package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuick(t *testing.T) {
	for _, n := range []int{64, 256, 1024, 4096} {
		l, err := newSteady(n, 1)
		require.NoError(t, err)
		ds := l.measure(300)
		slices.Sort(ds)
		fmt.Println(n, "min", ds[0], "median", ds[150], "per req", ds[150]/1*1/1, float64(ds[150].Nanoseconds())/float64(n))
	}
}
