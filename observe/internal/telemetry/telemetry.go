// Package telemetry answers one question: what do the variables of OpenTelemetry say of the
// export of one signal: traces, metrics or logs?
package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
)

// The variables that hold for all signals.
const (
	envDisabled = "OTEL_SDK_DISABLED"
	Endpoint    = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envProtocol = "OTEL_EXPORTER_OTLP_PROTOCOL"
)

// A Signal is "traces", "metrics" or "logs".
type Signal string

// Endpoint returns the variable with the address for this signal alone.
func (s Signal) Endpoint() string {
	return "OTEL_EXPORTER_OTLP_" + strings.ToUpper(string(s)) + "_ENDPOINT"
}

// Wanted reports whether the environment asks for the signal.
func (s Signal) Wanted() (bool, error) {
	if strings.EqualFold(os.Getenv(envDisabled), "true") {
		return false, nil
	}
	exporter := "OTEL_" + strings.ToUpper(string(s)) + "_EXPORTER"
	switch name := os.Getenv(exporter); name {
	case "none":
		return false, nil
	case "otlp":
	case "":
		if os.Getenv(Endpoint) == "" && os.Getenv(s.Endpoint()) == "" {
			return false, nil
		}
	default:
		return false, fmt.Errorf("%s: %s: there is no exporter %q; use otlp or none", s, exporter, name)
	}
	own := "OTEL_EXPORTER_OTLP_" + strings.ToUpper(string(s)) + "_PROTOCOL"
	switch p := cmp.Or(os.Getenv(own), os.Getenv(envProtocol)); p {
	case "", "http/protobuf", "http/json":
	default:
		return false, fmt.Errorf("%s: %s: there is no protocol %q; use http/protobuf or http/json, "+
			"which collectors accept at port 4318", s, envProtocol, p)
	}
	return true, nil
}

// Resource returns what the process is. The environment counts before the name and the version.
func Resource(ctx context.Context, s Signal, name, version string) (*resource.Resource, error) {
	own := resource.NewSchemaless(
		attribute.String("service.name", cmp.Or(name, "farcall")),
		attribute.String("service.version", version))
	said, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("%s: %w; see OTEL_RESOURCE_ATTRIBUTES", s, err)
	}
	all, err := resource.Merge(own, said)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	return all, nil
}
