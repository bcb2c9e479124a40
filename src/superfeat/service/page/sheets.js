// The dialogs: why a photo was found, adding photos, the token, and whether to delete.

import * as api from "./api.js";
import { element, percent, phrase, shortName, verdict } from "./cards.js";
import { sendFitting } from "./intake.js";
import { show } from "./photos.js";

const by = (id) => document.getElementById(id);

// The button with the cross, and a click beside the sheet, close it.
export function makeClosable(dialog, onClose = () => dialog.close()) {
  dialog.querySelectorAll("[data-close]").forEach((button) => button.addEventListener("click", onClose));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) onClose(); });
  dialog.addEventListener("cancel", (event) => { event.preventDefault(); onClose(); });
}

// -- Why

let stop = new AbortController();

// `name` is that of the photo that was asked with.
export async function showWhy(asked, box, hit, name) {
  stop.abort();
  stop = new AbortController();
  const { signal } = stop;
  by("why-sub").textContent = `${shortName(hit.name)} for ${shortName(name)} · ${phrase(verdict(hit))}`;
  by("why-error").hidden = by("why-text").hidden = true;
  by("why-frame").hidden = false;
  by("why-frame").classList.add("waiting");
  by("why-picture").hidden = true;
  if (!by("why").open) by("why").showModal();
  by("why-title").focus();
  try {
    const answer = await api.explain(asked, box, hit.id, signal);
    writeRegions(answer);
    await show(by("why-picture"), answer.picture, { signal });
    by("why-picture").alt = `${name} and ${hit.name} side by side, the matching regions outlined in both`;
    by("why-picture").hidden = false;
  } catch (error) {
    if (error.name === "AbortError") return;
    by("why-error").textContent = error.message;
    by("why-error").hidden = false;
    by("why-frame").hidden = true;
  } finally {
    if (!signal.aborted) by("why-frame").classList.remove("waiting");
  }
}

export function hideWhy() {
  stop.abort();
  if (by("why").open) by("why").close();
}

function writeRegions(answer) {
  const lines = answer.regions.map((region) => {
    const line = element("li");
    const place = `${where(region.query.centroid)} of your photo matches ${where(region.found.centroid)} of this one`;
    const sentence = place.charAt(0).toUpperCase() + place.slice(1);
    line.append(element("b", "", percent(region.share)), element("span", "", sentence));
    return line;
  });
  by("why-regions").replaceChildren(...lines);
  const words = `${answer.shared_words} shared ${answer.shared_words === 1 ? "word" : "words"}`;
  by("why-rest").textContent = lines.length
    ? `The other ${percent(answer.rest)} of the score lie scattered. The score is a sum over ${words}.`
    : "Nothing in these two photos matches.";
  by("why-text").hidden = false;
}

function where([x, y]) {
  const row = y < 1 / 3 ? "upper" : y > 2 / 3 ? "lower" : "";
  const column = x < 1 / 3 ? "left" : x > 2 / 3 ? "right" : "";
  if (row && column) return `the ${row} ${column}`;
  if (row) return `the ${row} middle`;
  return column ? `the ${column} side` : "the middle";
}

// -- Add

// `limits` says what the service takes.
export function prepareAdding(limits, onAdded) {
  by("add-open").addEventListener("click", () => {
    by("adding").replaceChildren();
    by("add").showModal();
  });
  makeClosable(by("add"));
  by("add-files").addEventListener("change", async (event) => {
    const files = [...event.target.files];
    event.target.value = "";
    const lines = files.map((file) => addLine(file, limits));
    by("adding").prepend(...lines.map(({ line }) => line));
    for (const { run } of lines) await run(onAdded); // one after the other: the network looks at one at a time
  });
}

function addLine(file, limits) {
  const line = element("li");
  const state = element("span", "state", "waiting");
  line.append(element("span", "what", file.name), state);
  const run = async (onAdded, replace = false) => {
    state.className = "state";
    state.textContent = "adding…";
    try {
      let sent = file;
      const added = await sendFitting(file, limits, (fitting) => { sent = fitting; return api.add(fitting, replace); });
      const done = { new: "added", replaced: "replaced", same: "was there" }[added.outcome];
      state.textContent = sent === file ? done : `${done}, made smaller`;
      onAdded(added);
    } catch (error) {
      state.className = "state wrong";
      state.textContent = error.message;
      if (error.code === "name_taken") line.append(replaceButton(() => run(onAdded, true)));
    }
  };
  return { line, run };
}

function replaceButton(onClick) {
  const button = element("button", "button quiet small", "Replace");
  button.type = "button";
  button.addEventListener("click", () => {
    button.remove();
    onClick();
  });
  return button;
}

// -- Questions

export function askToken(refused) {
  by("ask-error").hidden = !refused;
  by("ask-token").value = "";
  by("ask").showModal();
  return new Promise((resolve) => {
    by("ask").addEventListener("close", () => resolve(by("ask-token").value || null), { once: true });
  });
}

export function askDelete(name) {
  by("sure-text").textContent = `${name} will no longer be found. A photo that was added here is deleted; the files of a folder that was indexed stay.`;
  by("sure").returnValue = "no";
  by("sure").showModal();
  return new Promise((resolve) => {
    by("sure").addEventListener("close", () => resolve(by("sure").returnValue === "yes"), { once: true });
  });
}
