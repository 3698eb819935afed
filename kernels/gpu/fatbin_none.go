//go:build nocuda

package gpu

// fatbin: there is no driver to load one.
func fatbin() []byte { return nil }
