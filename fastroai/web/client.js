/**
 * A client of the runs that `fastroai.web` serves. It has no dependencies.
 *
 *     import { RunsClient } from "/letters/client.js";
 *     const letters = new RunsClient("/letters");
 *     const run = await letters.start({ text: "Dear Ada" }, { id: "letter-7" });
 *     for await (const event of letters.events(run.id)) {
 *       if (event.type === "text") draft = draft.slice(0, event.data.at) + event.data.text;
 *     }
 *
 * The JSON Schema of what it returns is at `schema.json` beside it.
 *
 * @typedef {{ id: string, status: string, code: string|null, step: string|null, output: unknown,
 *   cost_usd: string, cost_complete: boolean, requests: number, waits_until: string|null,
 *   questions: object[], position: number }} RunState
 * @typedef {{ type: "fact"|"text"|"state", id: number|null, data: any }} RunEvent
 */

const ENDED = ["finished", "failed", "cancelled"];

/** A request that the service has refused: problem details, as RFC 9457 has them. */
export class ProblemError extends Error {
  /** @param {number} status @param {any} problem @param {number|null} retryAfter seconds */
  constructor(status, problem, retryAfter) {
    super(problem.detail ?? problem.title ?? `HTTP ${status}`);
    this.name = "ProblemError";
    this.status = status;
    this.code = problem.code ?? null;
    this.problem = problem;
    this.retryAfter = retryAfter;
  }
}

export class RunsClient {
  /**
   * @param {string} base the address of the routes, such as "/letters"
   * @param {{ headers?: Record<string, string>, fetch?: typeof fetch }} [options]
   */
  constructor(base, { headers = {}, fetch: fetcher = globalThis.fetch.bind(globalThis) } = {}) {
    this.base = base.replace(/\/$/, "");
    this.headers = headers;
    this.fetch = fetcher;
  }

  /**
   * Begin a run. With an id, to repeat the call is safe.
   * @param {object} inputs @param {{ id?: string, wait?: number }} [options] @returns {Promise<RunState>}
   */
  start(inputs, { id, wait = 0 } = {}) {
    const path = id === undefined ? "/runs" : `/runs/${encodeURIComponent(id)}`;
    return this.#json(id === undefined ? "POST" : "PUT", `${path}?wait=${wait}`, inputs);
  }

  /** @param {string} id @param {{ wait?: number }} [options] @returns {Promise<RunState>} */
  read(id, { wait = 0 } = {}) {
    return this.#json("GET", `/runs/${encodeURIComponent(id)}?wait=${wait}`);
  }

  /** What a run has cost so far, by step, agent, model and so on. @param {string} id */
  report(id) {
    return this.#json("GET", `/runs/${encodeURIComponent(id)}/report`);
  }

  /** @param {Record<string, string|number|boolean>} [query] @returns {Promise<{runs: object[], next: string|null}>} */
  list(query = {}) {
    return this.#json("GET", `/runs?${new URLSearchParams(query)}`);
  }

  /** @returns {Promise<{questions: object[], next: string|null}>} */
  questions(query = {}) {
    return this.#json("GET", `/questions?${new URLSearchParams(query)}`);
  }

  /** @param {string} id @param {{question: string, value: unknown, reviewer?: string, rationale?: string}} answer */
  answer(id, answer) {
    return this.#json("POST", `/runs/${encodeURIComponent(id)}/answers`, answer);
  }

  /** @param {string} id */
  pause(id) {
    return this.#json("POST", `/runs/${encodeURIComponent(id)}/pause`);
  }

  /** @param {string} id */
  cancel(id) {
    return this.#json("POST", `/runs/${encodeURIComponent(id)}/cancel`);
  }

  /** @param {string} id @returns {Promise<RunState>} */
  resume(id) {
    return this.#json("POST", `/runs/${encodeURIComponent(id)}/resume`);
  }

  /**
   * Follow a run to its end, across reconnects: no fact is missed, and none is seen twice.
   * @param {string} id @param {{ after?: number, signal?: AbortSignal }} [options]
   * @returns {AsyncGenerator<RunEvent>}
   */
  async *events(id, { after = 0, signal } = {}) {
    let pause = 200;
    while (!signal?.aborted) {
      let response = null;
      try {
        response = await this.fetch(`${this.base}/runs/${encodeURIComponent(id)}/events?after=${after}`, {
          headers: { ...this.headers, Accept: "text/event-stream" },
          signal,
        });
        if (response.status === 204) {
          // The connection was lost between the last fact and the state.
          yield { type: "state", id: null, data: await this.read(id) };
          return;
        }
        if (!response.ok) throw await problemIn(response);
        for await (const event of frames(response.body)) {
          if (signal?.aborted) return; // else what has come before is told to somebody who has left
          pause = 200;
          if (event.retry !== null) pause = event.retry;
          if (event.type === "gone") return;
          if (!["fact", "text", "state"].includes(event.type)) continue;
          if (event.id !== null) {
            if (event.id <= after) continue;
            after = event.id;
          }
          yield { type: event.type, id: event.id, data: event.data };
          if (event.type === "state" && ENDED.includes(event.data.status)) return;
        }
      } catch (error) {
        if (signal?.aborted) return;
        if (error instanceof ProblemError && error.status < 500 && error.status !== 429) throw error;
        if (error instanceof ProblemError && error.retryAfter !== null) pause = error.retryAfter * 1000;
      }
      await new Promise((resolve) => setTimeout(resolve, pause * (0.75 + Math.random() / 2)));
      pause = Math.min(pause * 2, 10_000);
    }
  }

  async #json(method, path, body) {
    const response = await this.fetch(this.base + path, {
      method,
      headers: { ...this.headers, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (!response.ok) throw await problemIn(response);
    return await response.json();
  }
}

async function problemIn(response) {
  const seconds = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  const problem = await response.json().catch(() => ({}));
  return new ProblemError(response.status, problem, Number.isNaN(seconds) ? null : seconds);
}

/** Read server-sent events, as the HTML standard describes their format. */
async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      buffer += value;
      const blocks = buffer.split(/\r\n\r\n|\n\n|\r\r/);
      buffer = blocks.pop();
      for (const block of blocks) {
        const event = { type: "message", id: null, retry: null, data: null };
        const data = [];
        for (const line of block.split(/\r\n|\n|\r/)) {
          const colon = line.indexOf(":");
          if (colon === 0) continue;
          const [name, text] = colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
          if (name === "event") event.type = text;
          else if (name === "id") event.id = Number.parseInt(text, 10);
          else if (name === "retry") event.retry = Number.parseInt(text, 10);
          else if (name === "data") data.push(text);
        }
        if (data.length === 0) continue;
        event.data = JSON.parse(data.join("\n"));
        yield event;
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
