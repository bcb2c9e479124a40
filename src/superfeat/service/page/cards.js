// Photos as cards: those of the collection, and those that were found.

import { showLater } from "./photos.js";

const VERDICTS = [
  [0.95, "Very likely the same", "likely"],
  [0.75, "Likely the same", "likely"],
  [0.4, "Perhaps the same", "perhaps"],
  [0.1, "Unlikely to be the same", "unlikely"],
  [0, "Very unlikely to be the same", "unlikely"],
];

export const LIKELY = 0.5;
export const SURE = 0.75;

// A probability in words and percent; without one, the score is all there is to say.
export function verdict({ probability, score }) {
  const points = `score\u00a0${number(score)}`;
  if (probability === null) return { words: `S${points.slice(1)}`, numbers: "", kind: "unlikely" };
  const [, words, kind] = VERDICTS.find(([least]) => probability >= least) ?? VERDICTS.at(-1);
  return { words, numbers: `${percent(probability)} · ${points}`, kind };
}

export function phrase({ words, numbers }) {
  return numbers ? `${words}, ${numbers}` : words;
}

// Never "100 %" or "0 %" of what is not certain.
export function percent(value) {
  const rounded = Math.round(100 * value);
  if (rounded >= 100 && value < 1) return "over 99\u00a0%";
  if (rounded <= 0 && value > 0) return "under 1\u00a0%";
  return `${rounded}\u00a0%`;
}

export function number(value) {
  return value.toPrecision(3);
}

export function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

export function sampleCard(photo, onSearch) {
  const item = element("li");
  const button = element("button", "sample waiting");
  button.type = "button";
  button.setAttribute("aria-label", `Search with ${photo.name}`);
  const img = element("img");
  img.alt = "";
  showLater(img, photo.thumbnail, () => button.classList.remove("waiting"));
  button.append(img, element("span", "sample-name", photo.name));
  button.addEventListener("click", () => onSearch(photo));
  item.append(button);
  return item;
}

export function hitCard(hit, { onWhy, onSearch }) {
  const said = verdict(hit);
  const card = element("li", "card");
  const why = element("button", "card-photo waiting");
  why.type = "button";
  why.dataset.id = hit.id;
  why.setAttribute("aria-label", `Why ${hit.name}? ${phrase(said)}`);
  why.addEventListener("click", () => onWhy(hit));
  const frame = element("span", "frame");
  const img = element("img");
  img.alt = "";
  frame.append(img);
  showLater(img, hit.thumbnail, () => {
    why.classList.remove("waiting");
    if (hit.region) frame.append(outline(hit.region));
  });
  why.append(frame);
  card.append(why, cardText(hit, said, onSearch));
  return card;
}

function cardText(hit, said, onSearch) {
  const text = element("div", "card-text");
  const words = element("p", `verdict ${said.kind}`);
  words.append(element("span", "", said.words));
  const name = element("p", "card-name", shortName(hit.name));
  name.title = hit.name;
  const again = element("button", "icon-button");
  again.type = "button";
  again.title = "Search with this photo";
  again.setAttribute("aria-label", `Search with ${hit.name}`);
  again.append(icon("search"));
  again.addEventListener("click", () => onSearch(hit));
  text.append(words, ...(said.numbers ? [element("p", "card-numbers", said.numbers)] : []), name, again);
  return text;
}

// The file and its folder: in a collection with a folder per thing neither says much alone.
export function shortName(name) {
  return name.split("/").slice(-2).join("/");
}

function outline(region) {
  const mark = element("span", "region");
  const [left, top, width, height] = region.map((value) => `${100 * value}%`);
  Object.assign(mark.style, { left, top, width, height });
  return mark;
}

export function skeletons(count) {
  return Array.from({ length: count }, () => {
    const card = element("li", "card waiting");
    card.setAttribute("aria-hidden", "true");
    return card;
  });
}
