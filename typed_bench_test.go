package farcall_test

import (
	"context"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// BenchmarkTyped calls methods of Go types, without a connection.
func BenchmarkTyped(b *testing.B) {
	type order struct {
		Customer string `json:"customer"`
		Items    []struct {
			SKU   string `json:"sku"`
			Count int    `json:"count"`
		} `json:"items"`
		Where *located `json:"where"`
	}
	m := farcall.NewMux()
	farcall.Handle(m, "add", func(_ context.Context, p addends) (float64, error) {
		return p.A + p.B, nil
	})
	farcall.Handle(m, "order", func(_ context.Context, o order) (int, error) {
		return len(o.Items), nil
	})
	for name, params := range map[string]string{
		"add": `{"a":2,"b":3}`,
		"order": `{"customer":"Ann","items":[{"sku":"a-1","count":2},{"sku":"b-2","count":1}],` +
			`"where":{"city":"Oslo","zip":150}}`,
	} {
		b.Run(name, func(b *testing.B) {
			req := &farcall.Request{Method: name, Params: jsonrpc.Raw(params)}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.ServeRPC(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
