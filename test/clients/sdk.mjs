// Runs one call of the OpenAI SDK for Node. The call comes as JSON on stdin, what
// the SDK made of it leaves as JSON on stdout; calls_test.go has both forms.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const call = JSON.parse(readFileSync(0, 'utf8'));
const require = createRequire(call.installed + '/package.json');
const { OpenAI } = require(call.package);
const result = { events: [] };

if (call.idleMS) {
  // The timers of Node's own fetch, five minutes unless they are set: this is
  // what ends a silent stream in Node, whichever SDK reads it.
  await fetch('data:,');
  const dispatcher = Symbol.for('undici.globalDispatcher.1');
  const { constructor: Agent } = globalThis[dispatcher];
  globalThis[dispatcher] = new Agent({ bodyTimeout: call.idleMS, headersTimeout: call.idleMS });
}

const client = new OpenAI({ apiKey: call.apiKey, baseURL: call.baseURL, maxRetries: call.maxRetries ?? 0, timeout: 120_000 });

function take(response) {
  result.id = response.id;
  result.status = response.status;
  result.text = response.output_text;
  result.calls = response.output.filter((o) => o.type === 'function_call').map((o) => ({ name: o.name, arguments: o.arguments, callID: o.call_id }));
  if (response.error) result.responseError = response.error;
}

function see(event) {
  result.events.push(event.type);
  if (event.type === 'response.output_text.delta') result.deltas = (result.deltas ?? '') + event.delta;
  if (event.type === 'response.completed' || event.type === 'response.failed') {
    const { output } = event.response;
    // The SDK adds output_text to whole responses only.
    const text = output.flatMap((o) => (o.type === 'message' ? o.content : [])).map((c) => c.text ?? '').join('');
    take({ ...event.response, output_text: text });
  }
}

const kinds = {
  async create() {
    const { data, response } = await client.responses.create(call.request).withResponse();
    take(data);
    result.requestID = response.headers.get('x-request-id');
  },
  async stream() {
    const stream = await client.responses.create({ ...call.request, stream: true });
    for await (const event of stream) see(event);
  },
  async helper() {
    const stream = client.responses.stream(call.request);
    stream.on('event', see);
    take(await stream.finalResponse());
  },
  async models() {
    result.models = [];
    for await (const model of client.models.list()) result.models.push(model.id);
  },
  async embeddings() {
    const { data } = await client.embeddings.create(call.request);
    result.dimensions = data.map((d) => d.embedding.length);
  },
};

const begun = performance.now();
try {
  await kinds[call.kind]();
} catch (e) {
  result.error = {
    class: e.constructor.name, message: String(e.message), cause: String(e.cause ?? ''),
    status: e.status ?? 0, code: e.code ?? '', param: e.param ?? '', type: e.type ?? '',
    retryAfter: e.headers?.get?.('retry-after') ?? '', retryAfterMS: e.headers?.get?.('retry-after-ms') ?? '',
    requestID: e.requestID ?? '',
  };
}
result.elapsedMS = Math.round(performance.now() - begun);
process.stdout.write(JSON.stringify(result) + '\n');
