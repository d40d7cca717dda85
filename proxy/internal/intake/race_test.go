//go:build race

package intake

// raceDetector says that memory is some ten times slower than it is.
const raceDetector = true
