// Requests to the service this page comes from. Every failure becomes a Failure whose message is a plain sentence.

const TOKEN = "superfeat-token";
let askForToken = async () => null;

export class Failure extends Error {
  constructor(message, code = "", status = 0) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

// `ask` shows a dialog and gives the token that was typed; it is told whether one was refused before.
export function onTokenNeeded(ask) {
  askForToken = ask;
}

let asking = null;

async function token(refused) {
  asking ??= askForToken(refused).finally(() => { asking = null; });
  const given = await asking;
  if (given === null) throw new Failure("This service needs a token.", "token_needed", 401);
  sessionStorage.setItem(TOKEN, given);
}

async function send(path, options = {}) {
  for (;;) {
    const sent = sessionStorage.getItem(TOKEN);
    const headers = sent === null ? {} : { Authorization: `Bearer ${sent}` };
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Failure("The service cannot be reached. Is it still running?", "unreachable");
    }
    if (response.ok) return response;
    if (response.status !== 401) throw await failure(response);
    if (sent === sessionStorage.getItem(TOKEN)) await token(sent !== null);
  }
}

async function failure(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch (reason) {
    if (reason.name === "AbortError") throw reason;
    // something in between answered, and not in our shape
  }
  const text = error.message ?? `the service answered with an error (${response.status})`;
  return new Failure(sentence(text), error.code, response.status);
}

function sentence(text) {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

export async function getJson(path, options) {
  return (await send(path, options)).json();
}

export async function getBlob(path, options) {
  return (await send(path, options)).blob();
}

export function info() {
  return getJson("/info");
}

// `asked` is {photo: File}, {image: id} or {query: id}; `box` is null or [x, y, width, height].
export function search(asked, box, signal) {
  const form = new FormData();
  for (const [name, value] of Object.entries(asked)) form.append(name, value);
  if (box) form.append("box", boxText(box));
  form.append("top", "60");
  return getJson("/search", { method: "POST", body: form, signal });
}

export function boxText(box) {
  return box.map((value) => value.toFixed(4)).join(",");
}

export function add(file, replace) {
  const form = new FormData();
  form.append("photo", file);
  if (replace) form.append("replace", "true");
  return getJson("/images", { method: "POST", body: form });
}

export function remove(id) {
  return getJson(`/images/${id}`, { method: "DELETE" });
}

export function post(path, values = {}) {
  const form = new FormData();
  for (const [name, value] of Object.entries(values)) form.append(name, value);
  return getJson(path, { method: "POST", body: form });
}

// Whether `found` shows the same thing as what was asked with; null takes back what was said.
export function say(asked, box, found, same) {
  const answer = same === null ? "forget" : same ? "yes" : "no";
  return post("/labels", { ...asked, ...(box ? { box: boxText(box) } : {}), found, same: answer });
}

export function explain(asked, box, found, signal) {
  const values = new URLSearchParams({ ...asked, found });
  if (box) values.set("box", boxText(box));
  return getJson(`/explain?${values}`, { signal });
}
