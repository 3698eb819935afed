// Kinds of [probe_run]'s work.
enum { VNNI512, VNNI256, AVX2, TILE_INT8, TILE_BF16, FMA512, FMA256, READ };

// probe_has reports whether this machine has a kind's instructions.
int probe_has(int kind);

// probe_run does steps of a kind on every thread at once and returns the seconds that the slowest took. A step of READ reads
// each thread's share of the bytes at memory once.
double probe_run(int kind, int threads, long steps, const char *memory, long bytes);

// probe_ops is the number of operations in a step of a kind, on one thread.
double probe_ops(int kind);
