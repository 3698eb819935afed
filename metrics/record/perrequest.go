package record

// RequestMetrics returns vLLM's own metrics object of a response (--enable-per-request-metrics): what was not observed is
// null. Speculative decoding's part is the caller's to append.
func RequestMetrics(s *Stage) Row {
	ttft, generation := s.TTFT(), s.DecodeTime()
	speed := Value{}
	if a, ok := ttft.Seconds(); ok {
		if b, ok := generation.Seconds(); ok && a+b > 0 {
			speed = FloatValue(float64(s.NumGenerationTokens) / (a + b))
		}
	}
	return Row{
		{"time_to_first_token_ms", Millis(ttft)},
		{"generation_time_ms", Millis(generation)},
		{"queue_time_ms", Millis(s.QueuedTime())},
		{"mean_itl_ms", Millis(s.MeanTimePerOutputToken())},
		{"tokens_per_second", speed},
	}
}
