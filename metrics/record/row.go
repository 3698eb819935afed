package record

import (
	"encoding/json"
	"strconv"
	"time"
)

// Cell is one named value of a row.
type Cell struct {
	Name string
	Value
}

// Row is an ordered list of cells: one stage's line in stage_table or in the snapshot. It encodes as a JSON object.
type Row []Cell

// NewRow returns the row of a record, every field of the registry in its order, absent ones as null (PS-11).
func NewRow(s *Stage) Row {
	fields := Fields()
	row := make(Row, len(fields))
	for i, f := range fields {
		row[i] = Cell{f.Name, f.Value(s)}
	}
	return row
}

// Get returns a cell's value, absent when the row has no such cell.
func (r Row) Get(name string) Value {
	for i := range r {
		if r[i].Name == name {
			return r[i].Value
		}
	}
	return Value{}
}

// Without returns the row without the cells named in the set.
func (r Row) Without(set map[string]bool) Row {
	out := make(Row, 0, len(r))
	for _, c := range r {
		if !set[c.Name] {
			out = append(out, c)
		}
	}
	return out
}

// AppendJSON appends the row as an object with the cells in order.
func (r Row) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	for i, c := range r {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, c.Name), ':')
		dst = c.Value.AppendJSON(dst)
	}
	return append(dst, '}')
}

// MarshalJSON is [Row.AppendJSON].
func (r Row) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// StageMetrics folds records into the stage_metrics map of a response: one object a stage id, in stage order of first
// appearance (PS-23, PS-60).
func StageMetrics(records ...*Stage) map[string]Row {
	out := map[string]Row{}
	folded := map[int]Row{}
	last := map[int]*Stage{}
	for _, s := range records {
		if row, ok := folded[s.StageID]; ok {
			folded[s.StageID] = Fold(row, NewRow(s))
		} else {
			folded[s.StageID] = NewRow(s)
		}
		last[s.StageID] = s
	}
	for id, row := range folded {
		out[strconv.Itoa(id)] = snapshotRow(row, last[id].Name())
	}
	return out
}

func snapshotRow(row Row, name string) Row {
	byName := map[string]Value{StageNameField: TextValue(name)}
	for i, f := range Fields() {
		byName[f.Snapshot] = row[i].Value
	}
	out := make(Row, 0, len(byName))
	for _, key := range SnapshotOrder() {
		out = append(out, Cell{key, byName[key]})
	}
	return out
}

// Name returns the stage's name: the topology's, else stage_<id>.
func (s *Identity) Name() string {
	if s.StageName != "" {
		return s.StageName
	}
	return "stage_" + strconv.Itoa(s.StageID)
}

// tokensIn counts the prompt in the entry stage only, as vLLM-Omni does.
func (s *Stage) tokensIn() int {
	if s.StageID != 0 {
		return 0
	}
	return s.PromptTokens
}

// AudioSeconds is frames over sample rate, 0 without audio.
func (s *Stage) AudioSeconds() float64 {
	if s.AudioSampleRate <= 0 {
		return 0
	}
	return float64(s.AudioFrames) / float64(s.AudioSampleRate)
}

// TotalAudioFrames counts all segments of a streaming session; AudioFrames is the last one's.
func (s *Stage) TotalAudioFrames() int { return s.earlierFrames + s.AudioFrames }

func (s *Stage) unitType() string {
	switch {
	case s.OutputUnitType != "":
		return s.OutputUnitType
	case s.FinalOutputType != "":
		return s.FinalOutputType
	case s.NumGenerationTokens > 0:
		return "stream"
	}
	return "other"
}

func (s *Stage) unitCount() int {
	if s.Units > 0 {
		return s.Units
	}
	return s.NumGenerationTokens
}

// timePerUnit is shown for token streams only.
func (s *Stage) timePerUnit() Value {
	if t := s.unitType(); t != "text" && t != "stream" {
		return FloatValue(0)
	}
	return Millis(s.TimePerUnit()).orZero()
}

// durations returns a list in milliseconds.
func durations(ds []time.Duration) Value {
	list := make([]float64, len(ds))
	for i, d := range ds {
		list[i] = float64(d) / 1e6
	}
	return ListValue(list)
}

func appendString(dst []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil { // a string always encodes
		return append(dst, `""`...)
	}
	return append(dst, quoted...)
}
