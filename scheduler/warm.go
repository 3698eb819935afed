package scheduler

// ahead is for how many requests memory is read in advance. Go has no prefetch: plain reads that wait for nothing do as well, since the processor has
// many of them on the way at once, where the steps' own reads wait for each other.
const ahead = 16

// manyRows is where the requests' memory stops to fit into the nearest cache, and reading ahead begins to pay.
const manyRows = 128

// warmTokens reads the ends of the token arrays that Update is about to extend.
func warmTokens(items []item) (sum int32) {
	for i := range items {
		if t := items[i].q.tokens; len(t) > 0 {
			sum += t[len(t)-1]
		}
	}
	return sum
}

// warmTables reads the ends of the tables of those who are about to fill a block.
func warmTables(list []*seq) (sum int32) {
	for _, q := range list {
		if q.computed+1 < q.hashAt {
			continue
		}
		if n := len(q.hashes); n > 0 {
			sum += int32(q.hashes[n-1][0])
		}
		if t := q.tables[0]; len(t) > 0 {
			sum += t[len(t)-1]
		}
	}
	return sum
}
