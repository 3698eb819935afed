package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func BenchmarkSteadyDecode(b *testing.B) {
	for _, n := range []int{64, 256, 1024, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l, err := newSteady(n, 1)
			require.NoError(b, err)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i%600 == 599 {
					b.StopTimer()
					l, err = newSteady(n, 1)
					require.NoError(b, err)
					b.StartTimer()
				}
				l.step()
			}
		})
	}
}
