package gpu

// Decode steps are replayed as graphs whose shapes are fixed, so a batch is padded to the next bucket. Products over few rows are
// bound by the weights' bytes, so padding by up to a third costs little; more buckets cost memory and capture time.

// bucket is the smallest batch size with a graph that holds n rows, at most limit; 0: none.
func bucket(n, limit int) int {
	if n < 1 || n > limit {
		return 0
	}
	size := 1
	for size < n {
		size *= 2
	}
	if half := size / 4 * 3; size > 8 && half >= n {
		size = half
	}
	return min(size, limit)
}

// buckets lists all sizes up to a limit.
func buckets(limit int) []int {
	var all []int
	for n := 1; n <= limit; n = all[len(all)-1] + 1 {
		all = append(all, bucket(n, limit))
	}
	return all
}
