package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// marshal is json.Marshal without HTML escapes: texts look as they are, as from vLLM.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func writeJSON(w http.ResponseWriter, v any) {
	b, err := marshal(v)
	if err != nil {
		writeError(w, internalError(err))
		return
	}
	writeRaw(w, http.StatusOK, b)
}
