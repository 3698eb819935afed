package stagelog

import (
	"context"
	"fmt"
	"log/slog"
	"sort"
	"strconv"
	"strings"

	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// Summary is what the tables show, as data (PS-21). It encodes to vLLM-Omni's JSON; rows are unfiltered.
type Summary struct {
	FinalStageID map[string]int  `json:"final_stage_id"`
	Overall      record.Row      `json:"overall_summary"`
	Stages       []RequestStages `json:"stage_table"`
	Transfers    []RequestEdges  `json:"trans_table"`
	E2E          []record.Row    `json:"e2e_table"`
}

// RequestStages are one request's rows, one a stage event.
type RequestStages struct {
	RequestID string       `json:"request_id"`
	Stages    []record.Row `json:"stages"`
}

// RequestEdges are one request's transfers, one a pair of stages.
type RequestEdges struct {
	RequestID string       `json:"request_id"`
	Transfers []record.Row `json:"transfers"`
}

// BuildAndLogSummary logs the request, the tables at DEBUG and the timing line at INFO, and returns what they show (PS-20,
// PS-21). A nil logger (no --log-stats) logs nothing and returns nil.
func (a *Aggregator) BuildAndLogSummary(log *slog.Logger) *Summary {
	if log == nil {
		return nil
	}
	ctx := context.Background()
	s := a.Build()
	if log.Enabled(ctx, slog.LevelDebug) {
		for _, table := range []string{a.overallTable(s), a.e2eTable(s)} {
			if table != "" {
				log.Debug(table)
			}
		}
	}
	a.logTiming(log)
	if log.Enabled(ctx, slog.LevelDebug) {
		for _, table := range []string{a.stageTable(), a.transferTable(s)} {
			if table != "" {
				log.Debug(table)
			}
		}
	}
	return s
}

// logTo logs the request as BuildAndLogSummary does; the tables' data is made only where they are shown.
func (a *Aggregator) logTo(log *slog.Logger) {
	if log.Enabled(context.Background(), slog.LevelDebug) {
		a.BuildAndLogSummary(log)
	} else {
		a.logTiming(log)
	}
}

func (a *Aggregator) logTiming(log *slog.Logger) {
	if line := a.timing(); line != "" {
		log.Info(line)
	}
}

// Build returns the summary without logging it.
func (a *Aggregator) Build() *Summary {
	s := &Summary{FinalStageID: map[string]int{"*": a.finalStage}, Overall: a.overall()}
	stages := RequestStages{RequestID: a.requestID}
	hidden := hiddenFields()
	for _, c := range a.columns() {
		stages.Stages = append(stages.Stages, c.cells.Without(hidden))
	}
	edges := RequestEdges{RequestID: a.requestID, Transfers: []record.Row{}}
	for _, e := range a.edges {
		edges.Transfers = append(edges.Transfers, append(record.Row{{Name: "edge", Value: record.TextValue(e.name())}}, e.row()...))
	}
	s.Stages, s.Transfers = []RequestStages{stages}, []RequestEdges{edges}
	s.E2E = []record.Row{}
	if a.end.IsSet() {
		s.E2E = append(s.E2E, append(record.Row{{Name: record.RequestID, Value: record.TextValue(a.requestID)}}, a.e2e()...))
	}
	return s
}

// hiddenFields are what the rows of stage_table leave out, but for the stage id.
func hiddenFields() map[string]bool {
	set := map[string]bool{}
	for _, f := range record.Fields() {
		if !f.Table && f.Name != record.StageID {
			set[f.Name] = true
		}
	}
	return set
}

func (a *Aggregator) overall() record.Row {
	wall := spanMS(a.end.Sub(a.start))
	requests := 0
	if a.end.IsSet() {
		requests = 1
	}
	tokens := a.tokens()
	row := record.Row{
		{Name: "e2e_requests", Value: record.IntValue(requests)},
		{Name: "e2e_wall_time_ms", Value: record.FloatValue(wall)},
		{Name: "e2e_total_tokens", Value: record.IntValue(tokens)},
		{Name: "e2e_avg_time_per_request_ms", Value: record.FloatValue(wall)},
		{Name: "e2e_avg_tokens_per_s", Value: record.FloatValue(rate(tokens, wall))},
	}
	if pre := record.Millis(a.pipeline().Preprocess); pre.IsSet() {
		row = append(row, record.Cell{Name: "input_preprocess_time_ms", Value: pre})
	}
	for _, id := range a.stageIDs() {
		row = append(row, record.Cell{Name: "e2e_stage_" + strconv.Itoa(id) + "_wall_time_ms", Value: record.FloatValue(a.stageWall(id))})
	}
	return row
}

func rate(tokens int, ms float64) float64 {
	if ms <= 0 {
		return 0
	}
	return float64(tokens) * 1000 / ms
}

func spanMS(s clock.Span) float64 {
	ms, _ := s.Milliseconds()
	return ms
}

func (a *Aggregator) stageIDs() []int {
	var ids []int
	seen := map[int]bool{}
	for _, e := range a.events {
		if id := e.stage(); !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	sort.Ints(ids)
	return ids
}

// stageWall is a stage's submit until its last result reached the front; the final stage's until the request's end.
func (a *Aggregator) stageWall(id int) float64 {
	var first, last clock.Wall
	for _, e := range a.events {
		if e.stage() != id {
			continue
		}
		if !first.IsSet() {
			first = e.Submit
		}
		last = e.At
	}
	if id == a.finalStage && a.end.IsSet() {
		last = a.end
	}
	return spanMS(last.Sub(first))
}

// pipeline is the last event's: it has what the front end and the bridge measured.
func (a *Aggregator) pipeline() record.PipelineTimings {
	if len(a.events) == 0 {
		return record.PipelineTimings{}
	}
	return a.events[len(a.events)-1].Pipeline
}

func (a *Aggregator) e2e() record.Row {
	var took clock.Span
	bytes := 0
	for _, e := range a.edges {
		took, bytes = plus(took, e.total()), bytes+e.bytes
	}
	return record.Row{
		{Name: "e2e_total_ms", Value: record.FloatValue(spanMS(a.end.Sub(a.start)))},
		{Name: "e2e_total_tokens", Value: record.IntValue(a.tokens())},
		{Name: "transfers_total_time_ms", Value: record.FloatValue(spanMS(took))},
		{Name: "transfers_total_kbytes", Value: record.FloatValue(float64(bytes) / 1024)},
	}
}

func (e *edge) row() record.Row {
	return record.Row{
		{Name: "size_kbytes", Value: record.FloatValue(float64(e.bytes) / 1024)},
		{Name: "tx_time_ms", Value: record.FloatValue(spanMS(e.tx))},
		{Name: "rx_decode_time_ms", Value: record.FloatValue(spanMS(e.rxDecode))},
		{Name: "in_flight_time_ms", Value: record.FloatValue(spanMS(e.inFlight))},
	}
}

// timing is the [OmniTiming] line; "" when neither the front's timings nor the request's end are known.
func (a *Aggregator) timing() string {
	p := a.pipeline()
	if !a.end.IsSet() && !p.Preprocess.IsSet() && !p.AR2Diffusion.IsSet() {
		return ""
	}
	parts := []string{"req=" + a.requestID}
	total, hasTotal := a.end.Sub(a.start).Seconds()
	if hasTotal {
		parts = append(parts, fmt.Sprintf("total=%.2fs", total))
	}
	if pre, ok := p.Preprocess.Seconds(); ok {
		parts = append(parts, fmt.Sprintf("preprocess=%.2fs", pre))
		if hasTotal {
			parts = append(parts, fmt.Sprintf("engine=%.2fs", total-pre))
		}
	}
	if len(a.events) > 0 {
		var stages []string
		for _, e := range a.events {
			stages = append(stages, fmt.Sprintf("%d:%.2fs", e.stage(), e.Row.Get(record.StageGenTimeMS).Number()/1000))
		}
		parts = append(parts, "stages=["+strings.Join(stages, ",")+"]")
	}
	if len(a.edges) > 0 {
		var edges []string
		for _, e := range a.edges {
			edges = append(edges, fmt.Sprintf("%s=%.2fms", e.name(), spanMS(e.total())))
		}
		parts = append(parts, "transfers=["+strings.Join(edges, ",")+"]")
	}
	if ms, ok := p.AR2Diffusion.Milliseconds(); ok {
		parts = append(parts, fmt.Sprintf("ar2diffusion=%.2fms", ms))
	}
	return "[OmniTiming] " + strings.Join(parts, " ")
}

func (a *Aggregator) title(name string) string { return name + " [request_id=" + a.requestID + "]" }

func (a *Aggregator) overallTable(s *Summary) string {
	return render("Overall Summary", names(s.Overall), []column{{"Value", s.Overall}}, nil)
}

func (a *Aggregator) e2eTable(s *Summary) string {
	if len(s.E2E) == 0 {
		return ""
	}
	row := s.E2E[0].Without(map[string]bool{record.RequestID: true})
	fields := names(row)
	sort.Strings(fields)
	return render(a.title("RequestE2EStats"), fields, []column{{"Value", row}}, nil)
}

// stageTable has one column an event, fields in alphabetical order. A stage's postprocess time is left out when a diffusion
// stage reports its own.
func (a *Aggregator) stageTable() string {
	skip := hiddenFields()
	skip[record.StageID] = true
	for _, e := range a.events {
		if len(e.Diffusion) > 0 {
			skip[record.PostprocessTimeMS] = true
		}
	}
	split := map[string]bool{}
	for _, f := range record.SplitFields() {
		split[f.Name] = true
	}
	columns := a.columns()
	seen := map[string]bool{}
	var fields []string
	for _, c := range columns {
		for _, cell := range c.cells {
			if !seen[cell.Name] && !skip[cell.Name] {
				seen[cell.Name] = true
				fields = append(fields, cell.Name)
			}
		}
	}
	sort.Strings(fields)
	return render(a.title("StageRequestStats"), fields, columns, split)
}

func (a *Aggregator) transferTable(*Summary) string {
	var columns []column
	for _, e := range a.edges {
		columns = append(columns, column{e.name(), e.row()})
	}
	if len(columns) == 0 {
		return ""
	}
	fields := names(columns[0].cells)
	sort.Strings(fields)
	return render(a.title("TransferEdgeStats"), fields, columns, nil)
}

func names(row record.Row) []string {
	out := make([]string, len(row))
	for i := range row {
		out[i] = row[i].Name
	}
	return out
}
