package gateway

import (
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
)

// Changes returns what differs from another configuration, for people: "+name" is an upstream that
// the other one lacks, "-name" one that it alone has, "~name (env, timeout)" one with keys that
// differ, "page_size" another key, in the order of c. Disabled upstreams are none. It shows no
// values: they may be secret.
func (c *Config) Changes(from *Config) []string {
	var changes []string
	before := from.enabled()
	for _, u := range c.Upstreams {
		old := before[u.Name]
		delete(before, u.Name)
		switch {
		case u.Disabled:
			if old != nil {
				changes = append(changes, "-"+u.Name)
			}
		case old == nil:
			changes = append(changes, "+"+u.Name)
		default:
			keys := changedKeys(reflect.ValueOf(u).Elem(), reflect.ValueOf(old).Elem())
			if u.documents != old.documents && !slices.Contains(keys, "openapi") {
				keys = append(keys, "openapi")
			}
			if len(keys) > 0 {
				changes = append(changes, "~"+u.Name+" ("+strings.Join(keys, ", ")+")")
			}
		}
	}
	for _, u := range from.Upstreams {
		if before[u.Name] != nil {
			changes = append(changes, "-"+u.Name)
		}
	}
	return append(changes, changedKeys(reflect.ValueOf(c).Elem(), reflect.ValueOf(from).Elem())...)
}

// enabled returns the upstreams that are not disabled, by their names.
func (c *Config) enabled() map[string]*Upstream {
	all := map[string]*Upstream{}
	for _, u := range c.Upstreams {
		if !u.Disabled {
			all[u.Name] = u
		}
	}
	return all
}

// changedKeys returns the keys of a file with exported fields that differ. Upstreams are compared
// one by one.
func changedKeys(a, b reflect.Value) (keys []string) {
	for i := range a.NumField() {
		if f := a.Type().Field(i); f.IsExported() && f.Name != "Upstreams" &&
			!same(a.Field(i), b.Field(i)) {
			keys = append(keys, keyOf(f.Name))
		}
	}
	return keys
}

// same reports whether two values of one type are the same: for structs of a configuration, whether
// their exported fields are. An empty map or list is the same as none, and a server of this process
// as itself alone.
func same(a, b reflect.Value) bool {
	switch t := a.Type(); {
	case a.Kind() == reflect.Struct && ours(t):
		return len(changedKeys(a, b)) == 0
	case t == reflect.TypeFor[*mcp.Server]():
		return a.Pointer() == b.Pointer()
	case a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
		return same(a.Elem(), b.Elem())
	case a.Kind() == reflect.Slice && a.Len() == b.Len():
		for i := range a.Len() {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case a.Kind() == reflect.Map && a.Len() == b.Len():
		for _, k := range a.MapKeys() {
			if !b.MapIndex(k).IsValid() || !same(a.MapIndex(k), b.MapIndex(k)) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// ours reports whether a struct is part of a configuration. Others, as *url.URL, have their own
// fields that count.
func ours(t reflect.Type) bool {
	switch t.PkgPath() {
	case "", reflect.TypeFor[Config]().PkgPath(), reflect.TypeFor[guard.Config]().PkgPath():
		return true
	}
	return false
}

// keyOf is the key of a field in a file: "max_in_flight" of MaxInFlight, "url" of URL.
func keyOf(field string) string {
	var key strings.Builder
	runes := []rune(strings.ReplaceAll(field, "OpenAPI", "Openapi"))
	for i, r := range runes {
		// A word begins where a capital letter stands beside a small one.
		if i > 0 && unicode.IsUpper(r) &&
			(unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			key.WriteByte('_')
		}
		key.WriteRune(unicode.ToLower(r))
	}
	return key.String()
}
