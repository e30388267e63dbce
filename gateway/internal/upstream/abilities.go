package upstream

import (
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/apps"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// abilities is what a client can be asked for, and shown, as a set. It is bounded: each set has its
// own connections.
type abilities uint8

const (
	canForm abilities = 1 << iota
	canURL
	canSample
	canSampleTools
	canSampleContext
	canRoots
	canShowApps // what is in extensions is known to a legacy server from initialize alone
)

const allAbilities = 1<<7 - 1

// abilitiesOf reads a client's capabilities.
func abilitiesOf(caps jsonrpc.Raw) (a abilities) {
	if len(caps) == 0 {
		return 0
	}
	for key, value := range scan.Members(caps) {
		if len(value) == 0 || value[0] != '{' {
			continue
		}
		switch string(key) {
		case "elicitation":
			if scan.Member(value, "url") != nil {
				a |= canURL
			}
			if a&canURL == 0 || scan.Member(value, "form") != nil { // with neither it is the form
				a |= canForm
			}
		case "sampling":
			a |= canSample
			if scan.Member(value, "tools") != nil {
				a |= canSampleTools
			}
			if scan.Member(value, "context") != nil {
				a |= canSampleContext
			}
		case "roots":
			a |= canRoots
		case "extensions":
			for mime := range scan.Elements(scan.Member(scan.Member(value, apps.Extension), "mimeTypes")) {
				if mime[0] == '"' && string(scan.Unquote(mime)) == apps.MIMEType {
					a |= canShowApps
				}
			}
		}
	}
	return a
}

// sharedAbilities are declared on the connection that all callers share: the server must see one
// client. Roots belong to one client and are not declared.
const sharedAbilities = allAbilities &^ canRoots

// abilitiesOf returns what a connection for a caller declares.
func (o *Options) abilitiesOf(who *Caller) abilities {
	if o.Lifetime == lifetimeShared {
		return sharedAbilities
	}
	return abilitiesOf(who.Capabilities)
}

// declared returns the capabilities that say so.
func (a abilities) declared() *spec.ClientCapabilities {
	yes := spec.JSONObject{}
	caps := &spec.ClientCapabilities{}
	if a&(canForm|canURL) != 0 {
		caps.Elicitation = &spec.ElicitationCapability{}
		if a&canForm != 0 {
			caps.Elicitation.Form = yes
		}
		if a&canURL != 0 {
			caps.Elicitation.URL = yes
		}
	}
	if a&canSample != 0 {
		caps.Sampling = &spec.SamplingCapability{}
		if a&canSampleTools != 0 {
			caps.Sampling.Tools = yes
		}
		if a&canSampleContext != 0 {
			caps.Sampling.Context = yes
		}
	}
	if a&canRoots != 0 {
		caps.Roots = &spec.RootsCapability{}
	}
	if a&canShowApps != 0 {
		caps.Extensions = map[string]any{
			apps.Extension: map[string]any{"mimeTypes": []string{apps.MIMEType}},
		}
	}
	return caps
}
