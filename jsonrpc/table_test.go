package jsonrpc

import (
	"slices"
	"testing"
)

func isStandard(c Code) bool {
	return slices.Contains(
		[]Code{ParseError, InvalidRequest, MethodNotFound, InvalidParams, InternalError}, c)
}

// The rules of MCP 2026-07-28: it defines three codes in -32020…-32099, and others
// must not use that range, and -32000…-32019 is discouraged. New codes belong
// outside JSON-RPC's -32768…-32000.
func TestReservedCodes(t *testing.T) {
	var own []Code
	for _, row := range Conditions() {
		switch {
		case row.Modern == 0, isStandard(row.Modern):
		case row.Modern >= -32768 && row.Modern <= -32000:
			if row.Source == mcp {
				own = append(own, row.Modern)
			} else if !slices.Contains([]Code{-32020, -32021, -32022, Timeout, Overloaded}, row.Modern) {
				t.Errorf("%s: %d is reserved on MCP 2026-07-28", row.Name, row.Modern)
			}
		}
		if row.Source == farcall || row.Source == tutorial {
			if row.Legacy == -32002 || row.Legacy == -32042 {
				t.Errorf("%s: %d means something else on MCP", row.Name, row.Legacy)
			}
		}
	}
	slices.Sort(own)
	if !slices.Equal(own, []Code{-32022, -32021, -32020}) {
		t.Errorf("MCP's own codes are %v", own)
	}
}

func TestConditionsAreUnique(t *testing.T) {
	type key struct {
		source, what string
		code         Code
	}
	names, codes := map[key]bool{}, map[key]string{}
	for _, row := range Conditions() {
		name := key{row.Source, row.Name, row.Plain}
		if names[name] {
			t.Errorf("%v is there twice", name)
		}
		names[name] = true
		for dialect, code := range map[string]Code{
			"plain": row.Plain, "legacy": row.Legacy,
			"modern": row.Modern,
		} {
			k := key{row.Source, dialect, code}
			if code == 0 || row.Source != specification && (isStandard(code) || code == -32022) {
				continue // sent with a code of another registry
			}
			if other, twice := codes[k]; twice {
				t.Errorf("%s and %s are both %d on %s", other, row.Name, code, dialect)
			}
			codes[k] = row.Name
		}
	}
	// What we send ourselves must be unambiguous beyond one source.
	plain := map[Code]string{}
	for _, row := range conditions {
		if row.Plain == 0 || row.Source == lsp {
			continue
		}
		if other, twice := plain[row.Plain]; twice {
			t.Errorf("%s and %s are both %d", other, row.Name, row.Plain)
		}
		plain[row.Plain] = row.Name
	}
}

func TestConditionsAreComplete(t *testing.T) {
	for _, row := range Conditions() {
		if row.Name == "" || row.Category == "" || row.Source == "" || row.HTTPStatus < 400 ||
			row.HTTPStatus > 599 ||
			!slices.Contains([]string{"info", "warning", "error", "critical"}, row.Severity) ||
			row.Plain == 0 && row.Legacy == 0 && row.Modern == 0 {
			t.Errorf("%+v", row)
		}
	}
}

// A code of this package has one row, which says what farcall sends.
func TestConditionOfCode(t *testing.T) {
	for _, row := range conditions {
		if !row.sent() {
			continue
		}
		if got := row.Plain.Condition(); got != row {
			t.Errorf("%d is %+v, and %+v", row.Plain, got, row)
		}
		if first := row.Name[0]; first < 'A' || first > 'Z' {
			t.Errorf("%q is the message of errors, and begins with a small letter", row.Name)
		}
	}
	if got := Code(-32001).Condition(); got != (Condition{}) {
		t.Errorf("-32001 is not ours: %+v", got)
	}
	for code, want := range map[Code]bool{
		ParseError: true, InvalidRequest: true, Overloaded: true, TooLarge: true, InternalError: false,
		BadSignature: false, PermissionDenied: false,
	} {
		if row := code.Condition(); row.Explained() != want {
			t.Errorf("%v: explained is %t", code, !want)
		}
	}
}

func TestLookup(t *testing.T) {
	for code, want := range map[Code][]string{
		ParseError:     {"Parse error"},
		InvalidRequest: {"Invalid Request"},
		MethodNotFound: {"Method not found"},
		InvalidParams:  {"Invalid params"},
		InternalError:  {"Internal error"},
		-32001:         {"Validation failed", "UnknownErrorCode", "RequestTimeout"},
		-32002:         {"Permission denied", "ServerNotInitialized", "Resource not found"},
		-32003:         {"Request timeout"},
		-32004:         {"Dependency failed"},
		Timeout:        {"Timeout", "Request timeout"},
		Overloaded:     {"Overloaded"},
		-31050:         {"Rate limited"},
		Cancelled:      {"Cancelled", "RequestCancelled"},
		-32801:         {"ContentModified"},
		-32802:         {"ServerCancelled"},
		-32803:         {"RequestFailed"},
		-32020:         {"HeaderMismatch"},
		-32021:         {"MissingRequiredClientCapability"},
		-32022:         {"UnsupportedProtocolVersion"},
		-32042:         {"URLElicitationRequired"},
		0:              nil,
		12345:          nil,
	} {
		var got []string
		for _, row := range Lookup(code) {
			got = append(got, row.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", code, got, want)
		}
	}
}
