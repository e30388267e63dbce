// Validates the HAR file on standard input against the schema of HAR 1.2, and prints what its
// entries are, one a line.
'use strict';
const validate = require('har-validator');

async function main() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const { log } = await validate.har(JSON.parse(Buffer.concat(chunks).toString()));
  for (const { request, response, _webSocketMessages: messages } of log.entries) {
    console.log(request.method, response.status, messages ? `${messages.length} messages` : response.content.mimeType);
  }
}

main().catch((e) => {
  console.error(JSON.stringify(e.errors || e.message));
  process.exit(1);
});
