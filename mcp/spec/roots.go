package spec

// Root is a place that a client lets a server work in.
type Root struct {
	URI  string `json:"uri"` // a file: URI
	Name string `json:"name,omitzero"`
	Meta Meta   `json:"_meta,omitzero"`
}

// ListRootsResult is the result of roots/list.
type ListRootsResult struct {
	Meta  Meta   `json:"_meta,omitzero"`
	Roots []Root `json:"roots"`
}
