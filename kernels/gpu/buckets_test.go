package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestBuckets(t *testing.T) {
	require.Equal(t, []int{1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 100}, buckets(100))
	require.Equal(t, []int{1, 2, 3}, buckets(3))
	require.Zero(t, bucket(0, 8))
	require.Zero(t, bucket(9, 8))
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 2000).Draw(t, "limit")
		n := rapid.IntRange(1, limit).Draw(t, "rows")
		b := bucket(n, limit)
		if b < n || b > min(limit, 2*n) {
			t.Fatalf("bucket(%d, %d) = %d", n, limit, b)
		}
		if again := bucket(b, limit); again != b {
			t.Fatalf("bucket(%d, %d) = %d, whose bucket is %d", n, limit, b, again)
		}
	})
}
