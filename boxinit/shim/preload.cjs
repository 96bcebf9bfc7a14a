// Runs inside node before a preloaded box's call comes: loads the modules of node's own that the script names, then waits for the call.
//
// Node loads this file by itself (--require in NODE_OPTIONS) before it runs the script, and runs the script afterwards, whether that is
// CommonJS or an ES module. The skill's own modules are left to it: in them order and module.parent can be seen.
'use strict';

const CONTROL = 3;
const VARIABLE = 'SKILLBOX_PRELOAD';

// Modules that do nothing but be there when they are loaded.
const quiet = new Set([
  'assert', 'assert/strict', 'async_hooks', 'buffer', 'child_process', 'crypto', 'diagnostics_channel', 'dns', 'dns/promises', 'events', 'fs',
  'fs/promises', 'http', 'http2', 'https', 'net', 'os', 'path', 'path/posix', 'perf_hooks', 'querystring', 'readline', 'readline/promises',
  'stream', 'stream/promises', 'stream/web', 'string_decoder', 'timers', 'timers/promises', 'tls', 'url', 'util', 'util/types', 'v8', 'vm',
  'worker_threads', 'zlib',
]);

// A worker of the skill's loads this file again, long after.
if (process.env[VARIABLE] !== undefined) main();

function main() {
  const fs = require('fs');
  delete process.env[VARIABLE];
  const rest = process.env.NODE_OPTIONS.split(' ').slice(1).join(' ');
  if (rest === '') delete process.env.NODE_OPTIONS;
  else process.env.NODE_OPTIONS = rest;
  const before = { ...process.env };
  load(fs);
  fs.writeSync(CONTROL, 'ready\n');
  begin(fs, before);
  delete require.cache[__filename];
}

function load(fs) {
  let source;
  try {
    source = fs.readFileSync(process.argv[1], 'utf8');
  } catch {
    return; // node is about to tell, or to find it by another name
  }
  for (const [, name] of source.matchAll(/(?:\brequire\s*\(|\bfrom|\bimport)\s*["'](?:node:)?([a-z_0-9/]+)["']/g)) {
    if (quiet.has(name)) require(name);
  }
}

function begin(fs, before) {
  const count = parseInt(receive(fs, 8).toString('latin1'), 16);
  const parts = receive(fs, count).toString('utf8').split('\0');
  fs.closeSync(CONTROL);
  const words = Number(parts[0]);
  process.argv.push(...parts.slice(1, 1 + words));
  const after = {};
  for (const variable of parts.slice(1 + words, -1)) {
    const at = variable.indexOf('=');
    after[variable.slice(0, at)] = variable.slice(at + 1);
  }
  for (const name of Object.keys(before)) if (!(name in after)) delete process.env[name];
  for (const [name, value] of Object.entries(after)) if (before[name] !== value) process.env[name] = value;
}

function receive(fs, count) {
  const data = Buffer.alloc(count);
  for (let have = 0; have < count;) {
    let n = 0;
    try {
      n = fs.readSync(CONTROL, data, have, count - have, null);
    } catch (e) {
      if (e.code === 'EINTR' || e.code === 'EAGAIN') continue;
      throw e;
    }
    if (n === 0) process.reallyExit(125); // init is gone
    have += n;
  }
  return data;
}
