package metrics

import (
	"omni-engine/engine/request"
	"omni-engine/metrics/record"
)

// modality fills the audio, image and diffusion families from a record of such a stage.
func (k *sink) modality(s *record.Stage) {
	if s.PeakMemoryMB > 0 {
		k.r.stage.series[omniPeakMemory][0].set(s.PeakMemoryMB)
	}
	if k.r.stage.info.Audio && s.Finish != request.FinishAbort && s.Finish != request.FinishError {
		k.audio(s)
	}
	if k.r.stage.info.Type == record.Diffusion {
		k.diffusion(s)
	}
}

// defaultSampleRate stands in where a payload names none, as in vLLM-Omni.
const defaultSampleRate = 24000

func (k *sink) audio(s *record.Stage) {
	rate := s.AudioSampleRate
	if rate <= 0 {
		rate = defaultSampleRate
	}
	frames := float64(s.TotalAudioFrames())
	k.one(omniAudioFrames).add(frames)
	sec := frames / float64(rate)
	if sec <= 0 {
		k.r.series[omniAudioSkipped][0].add(1)
		return
	}
	k.one(omniAudioDuration).hist.Observe(sec)
	if gen, ok := s.GenTime().Seconds(); ok {
		k.one(omniAudioRTF).hist.Observe(gen / sec)
	}
}

// diffusion reads vLLM-Omni's diffusion_metrics, which come by name.
func (k *sink) diffusion(s *record.Stage) {
	steps := float64(s.InferenceSteps)
	for _, v := range s.Diffusion {
		switch v.Name {
		case "diffusion_engine_exec_time_s":
			k.one(omniDiffusionExec).hist.Observe(v.Value)
			if steps > 0 && v.Value > 0 {
				k.one(omniDiffusionPerStep).hist.Observe(v.Value / steps)
			}
		case "preprocess_time_s":
			k.one(omniDiffusionPre).hist.Observe(v.Value)
		case "postprocess_time_s":
			k.one(omniDiffusionPost).hist.Observe(v.Value)
		case "vae_decode_time_s":
			k.one(omniVAEDecode).hist.Observe(v.Value)
		case "forward_time_s":
			k.one(omniDiffusionForward).hist.Observe(v.Value)
			if s.OutputUnitType == "image" && steps > 0 && v.Value > 0 {
				k.one(omniDenoiseStep).hist.Observe(v.Value / steps)
			}
		case "kv_recv_time_s":
			k.one(omniDiffusionKVLoad).hist.Observe(v.Value)
		case "scheduler_queue_wait_s":
			k.r.stage.series[omniStageInQueue][0].hist.Observe(v.Value)
		}
	}
	k.one(omniImageFirst).observe(s.FirstImage)
	if steps > 0 {
		k.m.model[omniInferenceSteps][0].hist.Observe(steps)
	}
	if s.OutputUnitType == "image" {
		k.m.model[omniImageCount][0].add(float64(s.Units))
		if s.ImagePixels > 0 {
			k.m.model[omniImagePixels][0].hist.Observe(float64(s.ImagePixels))
		}
	}
}
