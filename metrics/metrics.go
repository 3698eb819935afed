package metrics

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"omni-engine/engine/request"
	"omni-engine/metrics/record"
)

// StageInfo describes one stage of the pipeline.
type StageInfo struct {
	ID    int
	Name  string // model_stage; empty: stage_<id>
	Type  record.StageType
	Audio bool // its final output is audio
	// KVConsumer: it loads KV that another engine computed (kv_transfer_config.is_kv_consumer).
	KVConsumer bool
	Replicas   int // replicas that exist from the start, numbered from 0; 0 means 1
}

// Config says what the families look like. The zero value of each switch is vLLM's default.
type Config struct {
	ModelName   string // served model name
	Stages      []StageInfo
	MaxModelLen int // bounds the token buckets; the longest of the stages

	EngineLabel     bool                 // keep vLLM's engine label beside stage and replica (--metrics-engine-label)
	DisableVLLM     bool                 // no vllm:* families (--disable-log-stats)
	CustomBuckets   map[string][]float64 // --custom-histogram-buckets
	SpeculativeK    int                  // draft tokens a step; 0: no spec_decode families
	KVCacheMetrics  bool                 // --kv-cache-metrics
	ToolParser      bool                 // a tool-call parser is configured
	MaxLoRAs        int                  // --max-loras, the value of a label; 0: no --enable-lora, no vllm:lora_requests_info
	ComputeNaNs     bool                 // VLLM_COMPUTE_NANS_IN_LOGITS: count the requests that NaN ended
	SleepEndpoints  bool                 // the endpoints that put the engine to sleep are served
	Realtime        bool                 // websockets are served
	Connectors      []string             // connector types between engines, for vllm_omni:kv_wait_s
	Version, Commit string               // for the build-info family
}

// Metrics holds every family of one server.
type Metrics struct {
	cfg     Config
	table   [numFamilies]family
	enabled [numFamilies]bool

	model    seriesSet
	pipeline seriesSet                  // the gauges of ?scope=pipeline: one series for all stages and replicas
	replicas atomic.Pointer[[]*replica] // ordered by stage, then replica; replaced, never changed
	stages   atomic.Pointer[[]*stage]
	mu       sync.Mutex // adding and removing

	http     *HTTP
	tools    *ToolParser
	lora     *adapters
	sleep    *sleepOperations
	sockets  *webSockets
	inFlight atomic.Pointer[func() (total, dispatched int)]
	transfer *transfers
	streams  *streams
	process  prometheus.Gatherer
	build    *series
	lastSize atomic.Int64 // of the last answer, so that the next is allocated at once
}

// seriesSet holds the children of each family under one set of labels.
type seriesSet [numFamilies][]*series

type stage struct {
	info   StageInfo
	about  *series // its stage_info series
	series seriesSet
}

// replica is one engine core's series. It stays when the core leaves, so its counters go on when it comes back.
type replica struct {
	stage  *stage
	id     int
	labels []label
	series seriesSet
	source atomic.Pointer[func() record.Snapshot]
	gone   atomic.Bool
	cache  atomic.Pointer[cacheSeries]
}

// New makes the families and every series that can be known before the first request, at zero.
func New(cfg Config) (*Metrics, error) {
	if cfg.ModelName == "" || len(cfg.Stages) == 0 {
		return nil, errors.New("metrics: a model name and at least one stage are needed")
	}
	buckets, err := newBuckets(cfg.MaxModelLen, cfg.CustomBuckets)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	cfg.Stages = slices.Clone(cfg.Stages) // in stage order: so the engine label numbers the replicas, as in vLLM-Omni
	slices.SortStableFunc(cfg.Stages, func(a, b StageInfo) int { return a.ID - b.ID })
	m := &Metrics{cfg: cfg, table: table(buckets, cfg.SpeculativeK, cfg.Connectors), http: newHTTP()}
	for i := range m.table {
		m.enabled[i] = m.isEnabled(&m.table[i])
	}
	m.transfer = newTransfers(cfg.ModelName)
	m.streams = newStreams(&cfg)
	if cfg.ToolParser && !cfg.DisableVLLM {
		m.tools = newToolParser(cfg.ModelName)
	}
	if cfg.MaxLoRAs > 0 && !cfg.DisableVLLM {
		m.lora = newAdapters(cfg.MaxLoRAs)
	}
	m.sleep = newSleepOperations(cfg.SleepEndpoints && !cfg.DisableVLLM)
	m.sockets = newWebSockets(cfg.Realtime && !cfg.DisableVLLM)
	m.model = m.newSet(perModel, m.modelLabels(), func(*family) bool { return true })
	whole := m.modelLabels()
	if cfg.EngineLabel {
		whole = append(whole, label{"engine", "0"})
	}
	m.pipeline = m.newSet(perReplica, whole, func(f *family) bool { return f.kind == gauge })
	m.build = newSeries(&family{kind: gauge}, []label{{"version", cfg.Version}, {"revision", cfg.Commit}, {"go_version", runtime.Version()}})
	m.replicas.Store(&[]*replica{})
	m.stages.Store(&[]*stage{})
	for _, info := range cfg.Stages {
		for r := range max(info.Replicas, 1) {
			if err := m.addReplica(info, r); err != nil {
				return nil, err
			}
		}
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	m.process = reg
	return m, nil
}

func (m *Metrics) isEnabled(f *family) bool {
	if m.cfg.DisableVLLM && !f.omni {
		return false
	}
	switch f.needs {
	case speculative:
		return m.cfg.SpeculativeK > 0
	case kvResidency:
		return m.cfg.KVCacheMetrics
	case nanCheck:
		return m.cfg.ComputeNaNs
	case kvConsumer:
		return slices.ContainsFunc(m.cfg.Stages, func(s StageInfo) bool { return s.KVConsumer })
	}
	return true
}

// newSet makes a scope's series of the families that are on.
func (m *Metrics) newSet(s scope, base []label, wanted func(*family) bool) seriesSet {
	var set seriesSet
	for i := range m.table {
		if f := &m.table[i]; f.scope == s && m.enabled[i] && wanted(f) {
			set[i] = children(f, base)
		}
	}
	return set
}

func (m *Metrics) modelLabels() []label { return []label{{"model_name", m.cfg.ModelName}} }

// AddReplica adds the series of one replica of a stage that was configured. A replica that was removed takes up its old
// series, whose counters went on existing.
func (m *Metrics) AddReplica(stageID, replicaID int) error {
	for _, info := range m.cfg.Stages {
		if info.ID == stageID {
			return m.addReplica(info, replicaID)
		}
	}
	return fmt.Errorf("metrics: add replica %d: no stage has id %d", replicaID, stageID)
}

func (m *Metrics) addReplica(info StageInfo, replicaID int) error {
	if replicaID < 0 {
		return fmt.Errorf("metrics: stage %d: replica id %d is negative", info.ID, replicaID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.find(info.ID, replicaID); r != nil {
		r.gone.Store(false)
		return nil
	}
	st := m.stageFor(info)
	old := *m.replicas.Load()
	r := &replica{stage: st, id: replicaID}
	r.labels = append(m.modelLabels(), label{"stage", strconv.Itoa(info.ID)}, label{"replica", strconv.Itoa(replicaID)})
	if m.cfg.EngineLabel {
		r.labels = append(r.labels, label{"engine", strconv.Itoa(len(old))})
	}
	r.series = m.newSet(perReplica, r.labels, fits(info))
	next := append(slices.Clone(old), r)
	sort.SliceStable(next, func(i, j int) bool {
		a, b := next[i], next[j]
		return a.stage.info.ID < b.stage.info.ID || a.stage.info.ID == b.stage.info.ID && a.id < b.id
	})
	m.replicas.Store(&next)
	return nil
}

// fits reports whether a family of a replica or stage applies to what the stage is.
func fits(info StageInfo) func(*family) bool {
	return func(f *family) bool {
		switch f.needs {
		case audioStage:
			return info.Audio
		case kvConsumer:
			return info.KVConsumer
		case diffusionStage:
			return info.Type == record.Diffusion
		}
		return true
	}
}

func (m *Metrics) stageFor(info StageInfo) *stage {
	old := *m.stages.Load()
	for _, s := range old {
		if s.info.ID == info.ID {
			return s
		}
	}
	identity := record.Identity{StageID: info.ID, StageName: info.Name}
	s := &stage{info: info}
	base := append(m.modelLabels(), label{"stage", strconv.Itoa(info.ID)})
	s.about = newSeries(&family{kind: gauge}, append(slices.Clone(base), label{"stage_name", identity.Name()}, label{"stage_type", info.Type.Label()}))
	s.series = m.newSet(perStage, base, fits(info))
	if m.enabled[omniStageGenTime] { // the one family whose stage series also say the type
		typed := append(slices.Clone(base), label{"stage_type", info.Type.Label()})
		s.series[omniStageGenTime] = children(&m.table[omniStageGenTime], typed)
	}
	next := append(slices.Clone(old), s)
	sort.SliceStable(next, func(i, j int) bool { return next[i].info.ID < next[j].info.ID })
	m.stages.Store(&next)
	return s
}

func (m *Metrics) find(stageID, replicaID int) *replica {
	for _, r := range *m.replicas.Load() {
		if r.stage.info.ID == stageID && r.id == replicaID {
			return r
		}
	}
	return nil
}

// RemoveReplica takes a replica's gauges away. Its counters and histograms stay: nobody's series is reset.
func (m *Metrics) RemoveReplica(stageID, replicaID int) {
	if r := m.find(stageID, replicaID); r != nil {
		r.gone.Store(true)
		r.source.Store(nil)
	}
}

// SetSnapshotSource says where a replica's gauges come from: a function that returns the newest published snapshot and
// never waits for the core (PS-74).
func (m *Metrics) SetSnapshotSource(stageID, replicaID int, source func() record.Snapshot) error {
	r := m.find(stageID, replicaID)
	if r == nil {
		return fmt.Errorf("metrics: snapshot source: stage %d has no replica %d", stageID, replicaID)
	}
	r.source.Store(&source)
	return nil
}

// Sink returns the door through which a replica's records come in; nothing is recorded for a replica that does not exist.
func (m *Metrics) Sink(stageID, replicaID int) record.Sink {
	if r := m.find(stageID, replicaID); r != nil {
		return m.newSink(r)
	}
	return record.Discard{}
}

// AdmissionRejected counts a request that a queue limit refused; limit is max_num_queued_reqs or max_num_queued_tokens.
func (m *Metrics) AdmissionRejected(limit string) {
	if i := slices.Index(m.table[admissionRejections].values, limit); i >= 0 && m.enabled[admissionRejections] {
		m.model[admissionRejections][i].add(1)
	}
}

// HTTP returns the recorder of the server's own requests.
func (m *Metrics) HTTP() *HTTP { return m.http }

// snapshots reads each replica's newest snapshot once, so that one scrape is of one moment.
func snapshots(replicas []*replica) []*record.Snapshot {
	out := make([]*record.Snapshot, len(replicas))
	for i, r := range replicas {
		if r.gone.Load() {
			continue
		}
		out[i] = &record.Snapshot{}
		if source := r.source.Load(); source != nil {
			*out[i] = (*source)()
		}
	}
	return out
}

// parkedReasons are the Wait kinds behind stage_parked_requests' values: grammar and streaming waits stay with vLLM's gauges.
func parkedReasons() [4]request.Wait {
	return [4]request.Wait{request.WaitInput, request.WaitChunk, request.WaitKV, request.WaitSession}
}
