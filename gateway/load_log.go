package gateway

import (
	"maps"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/observe/levels"
)

// logConfig is the type of Config.Log.
type logConfig = struct {
	Level      string
	Components map[string]string
}

// LogLevels returns Log as levels.Levels.Replace reads it, "" when the configuration does not say
// it.
func (c *Config) LogLevels() string {
	if c.Log.Level == "" && len(c.Log.Components) == 0 {
		return ""
	}
	all := []string{"info"}
	if c.Log.Level != "" {
		all[0] = c.Log.Level
	}
	for _, name := range slices.Sorted(maps.Keys(c.Log.Components)) {
		all = append(all, name+"="+c.Log.Components[name])
	}
	return strings.Join(all, ",")
}

// log checks the levels of the log.
func (c *checker) log(conf *logConfig) {
	c.choice("log.level", "level", conf.Level, levels.Names()...)
	for _, name := range slices.Sorted(maps.Keys(conf.Components)) {
		path := join("log.components", name)
		if !slices.Contains(levels.Standard(), name) {
			c.problem(path, "there is no such component of the log", "use "+either(levels.Standard()...))
			continue
		}
		c.choice(path, "level", conf.Components[name], levels.Names()...)
		if conf.Components[name] == "" {
			c.problem(path, "it has no level", "use "+either(levels.Names()...))
		}
	}
}
