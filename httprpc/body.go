package httprpc

import (
	"mime"
	"strings"
)

const (
	jsonType = "application/json"
	mediaSSE = "text/event-stream"
	// acceptBoth is what our client and most others of event streams send.
	acceptBoth = jsonType + ", " + mediaSSE
)

// isJSON reports whether a Content-Type declares JSON in UTF-8 (RFC 8259 §8.1).
// application/json-rpc and application/jsonrequest are names from before the
// standard one.
func isJSON(contentType string) bool {
	if contentType == jsonType {
		return true
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	switch media {
	case jsonType, "application/json-rpc", "application/jsonrequest":
		charset, ok := params["charset"]
		return !ok || strings.EqualFold(charset, "utf-8")
	}
	return false
}

// acceptsEvents reports whether an Accept header names event streams and does
// not rule them out with q=0 (RFC 9110 §12.5.1).
func acceptsEvents(accept []string) bool {
	for _, line := range accept {
		if line == acceptBoth {
			return true
		}
		if !strings.Contains(line, mediaSSE) {
			continue
		}
		for item := range strings.SplitSeq(line, ",") {
			media, params, err := mime.ParseMediaType(item)
			if err == nil && media == mediaSSE {
				q := strings.TrimRight(params["q"], "0.")
				return q != "" || params["q"] == ""
			}
		}
	}
	return false
}
