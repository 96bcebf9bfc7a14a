// A session of the official SDK's client with `skillbox mcp serve`: node session.mjs SKILLBOX BUNDLE. It prints what it saw as one JSON object.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [skillbox, bundle] = process.argv.slice(2);
const transport = new StdioClientTransport({ command: skillbox, args: ['mcp', 'serve', bundle], env: process.env });
const client = new Client({ name: 'session', version: '1' });
await client.connect(transport);

const seen = { server: client.getServerVersion().name, progress: 0 };
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);
const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
seen.result = await call('counts', { text: 'a b a' });
seen.refused = await call('counts', { text: 7 });
seen.slow = (await call('counts', { text: 'slow' }, { onprogress: () => seen.progress++ })).structuredContent;

const abort = new AbortController();
const canceled = call('counts', { text: 'forever' }, { signal: abort.signal }).catch((e) => String(e.message ?? e));
setTimeout(() => abort.abort('enough'), 300);
seen.canceled = await canceled;
seen.after = (await call('counts', { text: 'a' })).structuredContent;

const began = Date.now();
await client.close();
seen.closed = Date.now() - began;
console.log(JSON.stringify(seen));
