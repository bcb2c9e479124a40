// Photos as cards: those of the collection, and those that were found.

import { showLater } from "./photos.js";

const VERDICTS = [
  [0.95, "Very likely the same", "likely"],
  [0.75, "Likely the same", "likely"],
  [0.4, "Perhaps the same", "perhaps"],
  [0.1, "Unlikely to be the same", "unlikely"],
  [0, "Very unlikely to be the same", "unlikely"],
];

// By the least probability in them, so that a heading says what each card under it says; those of the last are folded.
const SECTIONS = [
  [0.75, "The same thing"],
  [0.4, "Perhaps the same thing"],
  [0.1, "Less alike"],
  [0, "Very unlikely to be the same"],
];
const MOST_ALIKE = 4; // shown where all are very unlikely
const UNJUDGED = 12; // shown where there are no probabilities
const FEWEST_PARTS = 2; // of a name: where each thing has a folder, neither it nor the file says much alone

const sectionOf = (probability) => SECTIONS.findIndex(([least]) => probability >= least);

// Hits, best first, as [{title, hits, folded}].
export function sortHits(hits) {
  let parts;
  if (hits.some((hit) => hit.probability === null)) {
    parts = [["Most alike first", hits.slice(0, UNJUDGED), false], ["Less alike", hits.slice(UNJUDGED), true]];
  } else {
    const last = SECTIONS.length - 1;
    parts = SECTIONS.map(([, title], place) => [title, hits.filter((hit) => sectionOf(hit.probability) === place), place === last]);
    if (hits.length && hits.every((hit) => sectionOf(hit.probability) === last)) {
      parts = [["Most alike", hits.slice(0, MOST_ALIKE), false], [SECTIONS[last][1], hits.slice(MOST_ALIKE), true]];
    }
  }
  return parts.filter(([, some]) => some.length).map(([title, some, folded]) => ({ title, hits: some, folded }));
}

// What was found, in a sentence that the sections bear out.
export function headline(hits) {
  if (!hits.length) return "Nothing alike was found";
  if (hits.some((hit) => hit.probability === null)) return `${photos(hits.length)}, most alike first`;
  const [same, perhaps] = [0, 1].map((place) => hits.filter((hit) => sectionOf(hit.probability) === place).length);
  if (same) return `${photos(same)} of the same thing${perhaps ? `, ${perhaps} more perhaps` : ""}`;
  return perhaps ? `${photos(perhaps)} that may show the same thing` : "No photo of the same thing was found";
}

export function photos(count) {
  return `${count.toLocaleString("en")} ${count === 1 ? "photo" : "photos"}`;
}

// Each name by as much of its end as tells it from the others.
export function shortNames(names) {
  const shown = new Map();
  const parts = new Map(names.map((name) => [name, name.split("/")]));
  for (let length = FEWEST_PARTS; shown.size < parts.size; length += 1) {
    const ends = new Map([...parts].map(([name, some]) => [name, some.slice(-length).join("/")]));
    const counts = new Map();
    for (const end of ends.values()) counts.set(end, (counts.get(end) ?? 0) + 1);
    for (const [name, end] of ends) {
      if (!shown.has(name) && (counts.get(end) === 1 || parts.get(name).length <= length)) shown.set(name, end);
    }
  }
  return shown;
}

// Where there is no room for all of a name, its end stays.
export function nameElement(tag, className, shown, whole) {
  const made = element(tag, `${className} ends`);
  made.title = whole;
  made.append(element("span", "begin", shown.slice(0, -END)), element("span", "end", shown.slice(-END)));
  return made;
}

const END = 14; // letters that are never left out

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

export function iconButton(name, label, onClick) {
  const button = element("button", "icon-button");
  button.type = "button";
  button.title = button.ariaLabel = label;
  button.append(icon(name));
  button.addEventListener("click", onClick);
  return button;
}

export function sampleCard(photo, onSearch) {
  const item = element("li");
  const button = element("button", "sample waiting");
  button.type = "button";
  button.setAttribute("aria-label", `Search with ${photo.name}`);
  const img = element("img");
  img.alt = "";
  showLater(img, photo.thumbnail, () => button.classList.remove("waiting"));
  button.append(img, element("span", "sample-name", shortName(photo.name)));
  button.addEventListener("click", () => onSearch(photo));
  item.append(button);
  return item;
}

// `actions` are {onWhy, onSearch, onMore, onSay}, called with the hit; onMore also with the button that was pressed,
// onSay with true, false or null. Without onSay nothing can be said.
export function hitCard(hit, shown, actions) {
  const said = verdict(hit);
  const card = element("li", "card");
  const why = element("button", "card-photo waiting");
  why.type = "button";
  why.dataset.id = hit.id;
  why.setAttribute("aria-label", `Why ${hit.name}? ${phrase(said)}`);
  why.addEventListener("click", () => actions.onWhy(hit));
  const frame = element("span", "frame");
  const img = element("img");
  img.alt = "";
  frame.append(img);
  showLater(img, hit.thumbnail, () => {
    why.classList.remove("waiting");
    if (hit.region) frame.append(outline(hit.region));
  });
  why.append(frame);
  card.append(why, cardText(hit, shown, said), cardTools(hit, actions));
  return card;
}

function cardText(hit, shown, said) {
  const text = element("div", "card-text");
  const words = element("p", `verdict ${said.kind}`);
  words.append(element("span", "", said.words));
  text.append(words);
  if (said.numbers) text.append(element("p", "card-numbers", said.numbers));
  if (hit.verified) text.append(element("p", "card-verified", `${percent(hit.verified)} of the score verified`));
  text.append(nameElement("p", "card-name", shown, hit.name));
  if (hit.copy_of) text.append(element("p", "card-numbers", `A copy of ${shortName(hit.copy_of)}`));
  return text;
}

function cardTools(hit, { onSearch, onMore, onSay }) {
  const tools = element("div", "card-tools");
  if (onSay) tools.append(...sayButtons(hit, onSay), element("span", "card-space"));
  const more = iconButton("more", `More for ${hit.name}`, () => onMore(hit, more));
  more.setAttribute("aria-haspopup", "menu");
  tools.append(iconButton("search", `Search with ${hit.name}`, () => onSearch(hit)), more);
  return tools;
}

// Yes and no; the one that was said is pressed, and pressing it again takes it back.
export function sayButtons(hit, onSay) {
  const made = [[true, "yes", "Yes, the same thing"], [false, "no", "No, another thing"]].map(([same, name, words]) => {
    const button = iconButton(name, `${words}: ${hit.name}`, () => onSay(hit, hit.said === same ? null : same));
    button.title = words;
    button.classList.add("say", name);
    button.dataset.says = hit.id;
    button.dataset.same = same;
    return button;
  });
  made.forEach((button) => press(button, hit.said));
  return made;
}

export function press(button, said) {
  button.ariaPressed = String(String(said) === button.dataset.same);
}

// A name alone, where there are no others to tell it from.
export function shortName(name) {
  return name.split("/").slice(-FEWEST_PARTS).join("/");
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
