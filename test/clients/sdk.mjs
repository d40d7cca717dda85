// Runs calls of the OpenAI SDK for Node, all at once. They come as JSON on stdin,
// what the SDK made of them leaves as JSON on stdout; calls_test.go has both forms.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const job = JSON.parse(readFileSync(0, 'utf8'));
const require = createRequire(job.installed + '/package.json');
const { OpenAI } = require(job.package);

if (job.idleMS) {
  // The timers of Node's own fetch, five minutes unless they are set: this is
  // what ends a silent stream in Node, whichever SDK reads it.
  await fetch('data:,');
  const dispatcher = Symbol.for('undici.globalDispatcher.1');
  const { constructor: Agent } = globalThis[dispatcher];
  globalThis[dispatcher] = new Agent({ bodyTimeout: job.idleMS, headersTimeout: job.idleMS });
}

function take(result, response) {
  result.id = response.id;
  result.status = response.status;
  result.text = response.output_text;
  result.calls = response.output.filter((o) => o.type === 'function_call').map((o) => ({ name: o.name, arguments: o.arguments, callID: o.call_id }));
  if (response.error) result.responseError = response.error;
}

function see(result, event) {
  result.events.push(event.type);
  if (event.type === 'response.output_text.delta') result.deltas = (result.deltas ?? '') + event.delta;
  if (event.type === 'response.completed' || event.type === 'response.failed') {
    const { output } = event.response;
    // The SDK adds output_text to whole responses only.
    const text = output.flatMap((o) => (o.type === 'message' ? o.content : [])).map((c) => c.text ?? '').join('');
    take(result, { ...event.response, output_text: text });
  }
}

// final reads to the end of one turn of a WebSocket.
async function final(events, result) {
  for await (const event of events) {
    if (event.type === 'error') throw event.error;
    if (event.type === 'close') throw new Error(`closed with ${event.code}`);
    if (event.type !== 'message') continue;
    const message = event.message;
    if (message.type === 'response.completed' || message.type === 'response.failed') {
      see(result, message);
      return;
    }
  }
}

const kinds = {
  // Two turns on one WebSocket; the second one builds on the first.
  async socket(client, request, result) {
    const { ResponsesWS } = require(job.package + '/resources/responses/ws');
    const socket = new ResponsesWS(client);
    const ids = [];
    try {
      const events = socket.stream();
      socket.send({ ...request, type: 'response.create' });
      await final(events, result);
      ids.push(result.id);
      socket.send({ ...request, type: 'response.create', previous_response_id: result.id, input: 'And then?' });
      await final(socket.stream(), result);
      ids.push(result.id);
    } finally {
      socket.close();
      result.events = ids;
    }
  },
  async create(client, request, result) {
    const { data, response } = await client.responses.create(request).withResponse();
    take(result, data);
    result.requestID = response.headers.get('x-request-id');
  },
  async stream(client, request, result) {
    const stream = await client.responses.create({ ...request, stream: true });
    for await (const event of stream) see(result, event);
  },
  async helper(client, request, result) {
    const stream = client.responses.stream(request);
    stream.on('event', (event) => see(result, event));
    take(result, await stream.finalResponse());
  },
  async models(client, request, result) {
    result.models = [];
    for await (const model of client.models.list()) result.models.push(model.id);
  },
  async embeddings(client, request, result) {
    const { data } = await client.embeddings.create(request);
    result.dimensions = data.map((d) => d.embedding.length);
  },
};

async function run(call) {
  const client = new OpenAI({ apiKey: call.apiKey, baseURL: job.baseURL, maxRetries: call.maxRetries, timeout: 120_000 });
  const result = { events: [] };
  const begun = performance.now();
  try {
    await kinds[call.kind](client, call.request, result);
  } catch (e) {
    result.error = {
      class: e.constructor.name, message: String(e.message), cause: String(e.cause ?? ''),
      status: e.status ?? 0, code: e.code ?? '', param: e.param ?? '', type: e.type ?? '',
      retryAfter: e.headers?.get?.('retry-after') ?? '', retryAfterMS: e.headers?.get?.('retry-after-ms') ?? '',
      requestID: e.requestID ?? '',
    };
  }
  result.elapsedMS = Math.round(performance.now() - begun);
  return result;
}

process.stdout.write(JSON.stringify(await Promise.all(job.calls.map(run))) + '\n');
