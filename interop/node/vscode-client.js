// Calls a farcall server with vscode-jsonrpc, the library of Visual Studio
// Code's language clients, and prints what it got as JSON.
//
//   node vscode-client.js stdio COMMAND ARGS...
//   node vscode-client.js socket HOST PORT
'use strict';
const { spawn } = require('node:child_process');
const net = require('node:net');
const rpc = require('vscode-jsonrpc/node');

function open([how, ...rest]) {
  if (how === 'socket') {
    const socket = net.connect(Number(rest[1]), rest[0]);
    return { input: socket, output: socket, close: () => socket.end() };
  }
  const child = spawn(rest[0], rest.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] });
  return { input: child.stdout, output: child.stdin, close: () => child.stdin.end() };
}

async function failure(promise) {
  try {
    return { result: await promise };
  } catch (e) {
    return { code: e.code, message: e.message };
  }
}

async function main() {
  const end = open(process.argv.slice(2));
  const c = rpc.createMessageConnection(new rpc.StreamMessageReader(end.input), new rpc.StreamMessageWriter(end.output));
  c.onRequest('ask', (params) => ({ asked: params }));
  const progress = [];
  c.onProgress(new rpc.ProgressType(), 'token-1', (value) => progress.push(value));
  c.listen();

  const got = {};
  got.named = await c.sendRequest('math/add', { a: 2, b: 3 });
  got.positional = await c.sendRequest('math/add', 2, 3);
  got.unicode = await c.sendRequest('echo', { text: 'žluťoučký 😀\u0000' });
  got.unknown = await failure(c.sendRequest('nosuch'));
  got.badParams = await failure(c.sendRequest('math/add', { a: 'x' }));
  got.callback = await c.sendRequest('callback', { method: 'ask', params: { n: 1 } });
  await c.sendNotification('logEvent', { event: 'x' });
  got.concurrent = await Promise.all([...Array(50).keys()].map((n) => c.sendRequest('math/add', n, 1)));

  const source = new rpc.CancellationTokenSource();
  const sleeping = failure(c.sendRequest('sleep', { ms: 60000 }, source.token));
  await c.sendRequest('echo', []); // the request before is on its way
  source.cancel();
  got.cancelled = await sleeping;

  got.slept = await c.sendRequest('sleep', { ms: 20, _meta: { progressToken: 'token-1' } });
  got.progress = progress.length > 0;
  console.log(JSON.stringify(got));
  c.dispose();
  end.close();
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
