// Validates the OpenRPC document on standard input with the tools of its
// makers, and dereferences it.
'use strict';
const { validateOpenRPCDocument, dereferenceDocument, parseOpenRPCDocument } = require('@open-rpc/schema-utils-js');

async function main() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const doc = JSON.parse(Buffer.concat(chunks).toString());
  const verdict = validateOpenRPCDocument(doc);
  if (verdict !== true) throw verdict;
  const parsed = await parseOpenRPCDocument(doc);
  const whole = await dereferenceDocument(parsed);
  console.log(whole.methods.length);
}

main().catch((e) => {
  console.error(e.message || e);
  process.exit(1);
});
