package gpu

// fatbin is the compiled kernels. TODO(GPUK): go:embed.
func fatbin() []byte { return []byte{0x50, 0xed, 0x55, 0xba, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} }
