//go:build race

package cuda_test

// raceDetector says that this test binary has the race detector, whose shadow memory and AddressSanitizer's exclude each other.
const raceDetector = true
