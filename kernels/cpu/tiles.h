// tiles.h: AMX's tiles. A thread configures them when it first needs them, and gives them back when it leaves the pool's work, so
// that no Go thread carries their 8 KiB of state.
typedef struct {
	uint8_t palette, start_row, reserved[14];
	uint16_t colsb[16];
	uint8_t rows[16];
} TileConfig;

static _Thread_local int tiles_set; // which configuration this thread has; 0: none

// gcc 12's intrinsic forgets that the instruction reads 64 bytes, so it is written out.
static void tiles_load(const TileConfig *c, int which) {
	__asm__ volatile("ldtilecfg %0" : : "m"(*c));
	tiles_set = which;
}

static void tiles_leave(void) {
	if (tiles_set) __asm__ volatile("tilerelease");
	tiles_set = 0;
}
