package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"omni-engine/internal/server/schema"
)

// apiError is an error that a client sees, in vLLM's body form.
type apiError struct {
	Status  int
	Type    string
	Message string
	Param   string // empty: null
}

func (e *apiError) Error() string { return e.Message }

// badRequest is a semantic error without a parameter.
func badRequest(format string, a ...any) *apiError {
	return &apiError{http.StatusBadRequest, "BadRequestError", fmt.Sprintf(format, a...), ""}
}

// badParam names the parameter, and the value when there is one to show: vLLM appends both to the message.
func badParam(param string, value any, format string, a ...any) *apiError {
	e := badRequest(format, a...)
	e.Param = param
	if value == nil {
		e.Message += fmt.Sprintf(" (parameter=%s)", param)
	} else {
		e.Message += fmt.Sprintf(" (parameter=%s, value=%s)", param, schema.Text(value))
	}
	return e
}

func notFound(model string, served []string) *apiError {
	e := &apiError{http.StatusNotFound, "NotFoundError", "", "model"}
	e.Message = fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", model, join(served))
	return e
}

func internalError(err error) *apiError {
	return &apiError{http.StatusInternalServerError, "InternalServerError", err.Error(), ""}
}

// unsupported refuses a field that is known to vLLM and not served here; nothing is ignored silently.
func unsupported(field, why string) *apiError {
	return badParam(field, nil, "`%s` is not supported by omni-engine%s.", field, why)
}

// body is the error object as a response or an SSE event carries it.
func (e *apiError) body() []byte {
	var param *string
	if e.Param != "" {
		param = &e.Param
	}
	b, _ := marshal(map[string]any{"error": errorInfo{e.Message, e.Type, param, e.Status}})
	return b
}

type errorInfo struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

// asAPI turns any error into one that a client sees.
func asAPI(err error) *apiError {
	var api *apiError
	var errs schema.Errors
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &errs):
		return &apiError{http.StatusBadRequest, "Bad Request", errs.Error(), errs.Param()}
	}
	return internalError(err)
}

func writeError(w http.ResponseWriter, err error) {
	e := asAPI(err)
	writeRaw(w, e.Status, e.body())
}

func writeRaw(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body))) // as vLLM does: an answer that is flushed would be chunked
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// writeDetail answers as the routing layer does.
func writeDetail(w http.ResponseWriter, status int, detail string) {
	b, _ := json.Marshal(map[string]string{"detail": detail})
	writeRaw(w, status, b)
}
