package gateway

import "fmt"

// confined is the command that runs the upstream's in its sandbox, if it has one.
func (c *Upstream) confined(launcher []string) ([]string, error) {
	if c.Sandbox == nil {
		return c.Command, nil
	}
	return nil, fmt.Errorf("gateway: upstream %s: sandboxes are not built yet", c.Name)
}
