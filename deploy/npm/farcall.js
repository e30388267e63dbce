#!/usr/bin/env node
// Starts the farcall binary of the optional dependency that npm installed for this machine.
"use strict";

const { spawn } = require("node:child_process");
const os = require("node:os");

const name = `@farcall/${process.platform}-${process.arch}`;
const file = process.platform === "win32" ? "farcall.exe" : "farcall";

let program;
try {
  program = require.resolve(`${name}/${file}`);
} catch {
  console.error(`farcall: the package ${name} is not installed.`);
  console.error("Install without --omit=optional, or download an archive from https://github.com/farcall-dev/farcall/releases.");
  process.exit(1);
}

// The terminal sends its signals to both processes; those that are sent to this one alone are passed on.
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (err) => {
  console.error(`farcall: cannot start ${program}: ${err.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  process.exit(signal ? 128 + (os.constants.signals[signal] ?? 0) : code);
});
