package record

// Fold merges next into row, which are rows of the same stage as [NewRow] makes them, by each field's rule: vLLM-Omni's, and
// for the split and the waits the last value that is not absent (PS-60). It returns a new row.
func Fold(row, next Row) Row {
	out := make(Row, len(row))
	copy(out, row)
	fields := Fields()
	for i, f := range fields {
		out[i].Value = foldValue(f.Fold, row[i].Value, next[i].Value)
	}
	for i, f := range fields { // these read what the others became
		switch f.Fold {
		case FoldMeanOf:
			if list := out.Get(f.Of); len(list.List()) > 0 {
				out[i].Value = FloatValue(list.Mean())
			} else {
				out[i].Value = foldValue(FoldLastPositive, row[i].Value, next[i].Value)
			}
		case FoldPerUnit:
			if n := out.Get(OutputUnitCount).Int(); n > 1 {
				out[i].Value = FloatValue((out.Get(StageGenTimeMS).Number() - out.Get(ServingFirstMS).Number()) / float64(n-1))
			}
		}
	}
	return out
}

func foldValue(rule FoldRule, a, b Value) Value {
	switch rule {
	case FoldSum:
		sum := a
		sum.num += b.num
		return sum
	case FoldFirstPositive:
		if a.num <= 0 {
			return b
		}
	case FoldLastPositive:
		if b.num > 0 {
			return b
		}
	case FoldLastSet:
		if b.IsSet() {
			return b
		}
	case FoldConcat:
		return ListValue(append(append([]float64{}, a.list...), b.list...))
	}
	return a
}

// FoldDuplex folds the rows of one stage into the one column of the duplex table: as [Fold], with the time per output token
// weighted by max(tokens out − 1, 1).
func FoldDuplex(rows ...Row) Row {
	if len(rows) == 0 {
		return nil
	}
	out, weighted, weights := rows[0], 0.0, 0.0
	for i, r := range rows {
		if i > 0 {
			out = Fold(out, r)
		}
		if tpot := r.Get(VLLMTPOTMS).Number(); tpot > 0 {
			w := max(r.Get(NumTokensOut).Number()-1, 1)
			weighted, weights = weighted+tpot*w, weights+w
		}
	}
	if weights > 0 {
		out = append(Row{}, out...)
		for i := range out {
			if out[i].Name == VLLMTPOTMS {
				out[i].Value = FloatValue(weighted / weights)
			}
		}
	}
	return out
}
