package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"

	"omni-engine/cmd/omni-engine/build"
	"omni-engine/internal/config"
)

// fingerprint is system_fingerprint: equal for servers that answer alike. Mode full names the version, hash only the digest.
func fingerprint(cfg *config.Serve) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%s|%s|%s|%s", build.Read().Version, cfg.Model, cfg.DType, cfg.CPULevel, cfg.KVCacheDType))
	digest := hex.EncodeToString(sum[:4])
	switch cfg.FingerprintMode {
	case "full":
		return "vllm-" + build.VLLM + "-" + digest
	case "hash":
		return digest
	case "custom":
		return cfg.FingerprintValue
	}
	return ""
}

// logWriter turns lines into log records.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.log.Info(strings.TrimSpace(string(b)))
	return len(b), nil
}
