package registry_test

import (
	"context"
	"fmt"
	"log"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/registry"
)

// Example writes the server.json of a server that clients start as a container, or reach over HTTP.
func Example() {
	s := mcp.NewServer("weather", "1.0.0", &mcp.ServerOptions{Description: "Says what the weather is"})

	f, err := registry.New(context.Background(), s, "io.github.user/weather")
	if err != nil {
		log.Fatal(err)
	}
	f.Repository = "https://github.com/user/weather"
	f.Packages = []registry.Package{{
		Type: "oci", Identifier: "ghcr.io/user/weather:1.0.0",
		Env: []registry.Input{
			{Name: "WEATHER_KEY", Description: "the key of the service", Required: true, Secret: true},
		},
	}}
	f.Remotes = []registry.Transport{{URL: "https://weather.example.com/mcp"}}
	text, err := f.JSON()
	if err != nil {
		log.Fatal(err)
	}

	fmt.Printf("%s", text)
	// Output:
	// {
	//   "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
	//   "name": "io.github.user/weather",
	//   "description": "Says what the weather is",
	//   "version": "1.0.0",
	//   "repository": {
	//     "url": "https://github.com/user/weather",
	//     "source": "github"
	//   },
	//   "packages": [
	//     {
	//       "registryType": "oci",
	//       "identifier": "ghcr.io/user/weather:1.0.0",
	//       "environmentVariables": [
	//         {
	//           "name": "WEATHER_KEY",
	//           "description": "the key of the service",
	//           "isRequired": true,
	//           "isSecret": true
	//         }
	//       ],
	//       "transport": {
	//         "type": "stdio"
	//       }
	//     }
	//   ],
	//   "remotes": [
	//     {
	//       "type": "streamable-http",
	//       "url": "https://weather.example.com/mcp"
	//     }
	//   ]
	// }
}
