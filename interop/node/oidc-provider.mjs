// An OpenID provider of npm's oidc-provider, in memory: node oidc-provider.mjs JWKS, where JWKS are the public
// keys of the client "workload". It prints its address, and what it has granted.
import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: "workload",
        token_endpoint_auth_method: "private_key_jwt",
        token_endpoint_auth_signing_alg: "ES256",
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
        jwks: JSON.parse(process.argv[2]),
      },
    ],
    scopes: ["openid", "offline_access", "read"],
    pkce: { required: () => true },
    issueRefreshToken: async (_, client) => client.grantTypeAllowed("refresh_token"),
    rotateRefreshToken: () => true,
    features: {
      devInteractions: { enabled: true },
      registration: { enabled: true },
      revocation: { enabled: true },
      clientCredentials: { enabled: true },
      dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: (_, resource) => ({
          scope: "read",
          audience: resource,
          accessTokenFormat: "jwt",
          accessTokenTTL: 2,
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
  });
  provider.on("grant.success", (ctx) => console.log(`granted ${ctx.oidc.params.grant_type} to ${ctx.oidc.client.clientId}`));
  provider.on("grant.error", (ctx, err) => console.log(`refused ${err.message} ${err.error_description ?? ""}`));
  provider.on("grant.revoked", () => console.log("revoked"));
  provider.on("server_error", (_, err) => console.log(`failed ${err.stack}`));
  server.on("request", provider.callback());
  console.log(`ready ${issuer}`);
});
