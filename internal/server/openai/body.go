package openai

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"omni-engine/internal/server/schema"
)

// maxBody bounds a request body: more than any context of tokens takes as JSON.
const maxBody = 64 << 20

// readBody reads a JSON body and checks it: syntax, then the checks that vLLM makes before types, then types.
func readBody(r *http.Request, before func(*schema.Dict) error, typ schema.Type) (*schema.Dict, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return nil, &apiError{http.StatusBadRequest, "Bad Request",
			"1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed", ""}
	}
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			// A client that is still sending sees a reset connection, not the answer, when the rest stays unread.
			_, _ = io.CopyN(io.Discard, r.Body, 4*maxBody)
			return nil, &apiError{http.StatusRequestEntityTooLarge, "Request Entity Too Large",
				fmt.Sprintf("the request body is larger than %d bytes", maxBody), ""}
		}
		return nil, badRequest("the request body could not be read: %v", err)
	}
	if len(data) == 0 {
		_, err := schema.Check(typ, nil)
		return nil, err
	}
	v, err := schema.Parse(data)
	var syntax *schema.SyntaxError
	if errors.As(err, &syntax) {
		loc := fmt.Sprintf("body.%d", syntax.Pos)
		return nil, schema.Errors{{Type: "json_invalid", Loc: loc, Msg: "JSON decode error", Input: schema.NewDict(), Ctx: "'error': " + schema.Repr(syntax.Msg)}}
	}
	if d, ok := v.(*schema.Dict); ok && before != nil {
		if err := before(d); err != nil {
			return nil, err
		}
	}
	v, err = schema.Check(typ, v)
	if err != nil {
		return nil, err
	}
	return v.(*schema.Dict), nil
}

func join(names []string) string { return strings.Join(names, ", ") }
