// The page: what is asked stands in its address, so that back, forward and reload work.

import * as api from "./api.js";
import { BoxTool } from "./box.js";
import { Browser, filterOf } from "./browse.js";
import { element, headline, hitCard, nameElement, photos, press, sayButtons, shortName, shortNames, skeletons, sortHits } from "./cards.js";
import { listenToFiles, sendFitting } from "./intake.js";
import { prepareMenu } from "./menu.js";
import { show, showBlob } from "./photos.js";
import { askDelete, askToken, hideWhy, makeClosable, prepareAdding, showWhy } from "./sheets.js";

const by = (id) => document.getElementById(id);
const KEPT = 30;
const facts = { images: 0, read_only: true, files: false, max_upload: Infinity };
const answers = new Map(); // by address without `explain`: going back searches nothing again
const files = new Map(); // uploads by the id that the service gave them
let searching = new AbortController();
let current = null; // {asked, box, answer} that is shown

const say = (text) => { by("status").textContent = text; };
const tool = new BoxTool(by("stage"), by("box"), { onSearch: searchPart, say });
const showMenu = prepareMenu({ tell, fail: (error) => { hideWhy(); showNotice(error); }, onAlbum: ({ id }) => visit({ albumof: id }) });
const openMenu = (photo, button) => showMenu(photo, button, facts.files);
const browser = new Browser({ visit, onMore: openMenu, fail: showNotice });

// -- Addresses

function place() {
  const values = new URLSearchParams(location.search);
  const asked = values.has("image") ? { image: values.get("image") }
    : values.has("query") ? { query: values.get("query") } : null;
  const box = values.has("box") ? values.get("box").split(",").map(Number) : null;
  return { asked, box, explain: values.get("explain") };
}

function address(asked, box, explain) {
  const values = new URLSearchParams(asked ?? {});
  if (box) values.set("box", api.boxText(box));
  if (explain !== undefined && explain !== null) values.set("explain", explain);
  return values.size ? `/?${values}` : "/";
}

function go(asked, box = null, explain = null) {
  return visit(new URLSearchParams(address(asked, box, explain).slice(2)));
}

function visit(values) {
  const text = String(new URLSearchParams(values));
  history.pushState({ inside: true }, "", text ? `/?${text}` : "/");
  return render();
}

function render() {
  hideNotice();
  return paint();
}

async function paint() {
  const { asked, box, explain } = place();
  if (asked === null) {
    hideWhy();
    browse(new URLSearchParams(location.search));
    return;
  }
  const shown = current !== null && address(current.asked, current.box) === address(asked, box);
  if (!shown || by("found").hidden) await showFound(asked, box);
  const hit = current?.answer?.hits.find((one) => String(one.id) === explain);
  if (hit) {
    by("why-say").replaceChildren(...(facts.read_only ? [] : sayButtons(hit, saySame)));
    await showWhy(current.asked, current.box, hit, queryName(current.asked, current.answer));
  }
  else hideWhy();
}

// -- Looking around

function browse(values) {
  searching.abort();
  current = null;
  by("found").hidden = true;
  by("pick-again").hidden = !values.size;
  if (values.has("album") || values.has("albumof")) browser.showAlbum(Object.fromEntries(values));
  else if (values.has("albums")) browser.showAlbums(filterOf(values));
  else browser.showStart(filterOf(values));
}

// What is listed is out of date: photos were added or deleted.
function forgetList() {
  answers.clear();
  browser.forget();
}

function showCount(images) {
  facts.images = images;
  by("count").textContent = photos(images);
}

// -- Search

function searchFile(file) {
  hideNotice();
  if (file.type && !file.type.startsWith("image/")) {
    return showNotice(new api.Failure(`${file.name} is not a photo.`));
  }
  return run({ photo: file }, null, (answer) => {
    const asked = { query: answer.query.query };
    remember(files, asked.query, file);
    history.pushState({ inside: true }, "", address(asked));
    return asked;
  });
}

function searchPart(box) {
  by("box-toggle").setAttribute("aria-pressed", "false");
  tool.arm(false);
  if (current) go(current.asked, box);
}

async function showFound(asked, box) {
  const known = answers.get(address(asked, box));
  if (known) fill(asked, box, known);
  else await run(asked, box, () => asked);
}

async function run(sent, box, settle) {
  searching.abort();
  searching = new AbortController();
  const { signal } = searching;
  showWaiting(sent, box);
  try {
    const answer = sent.photo
      ? await sendFitting(sent.photo, facts, (photo) => api.search({ photo }, box, signal))
      : await api.search(sent, box, signal);
    const asked = settle(answer);
    remember(answers, address(asked, box), answer);
    fill(asked, box, answer);
  } catch (error) {
    if (error.name === "AbortError") return;
    showFailure(error, sent, box, settle);
  }
}

function showWaiting(sent, box) {
  current = { asked: sent.photo ? null : sent, box, answer: null };
  browser.hide();
  by("found").hidden = by("pick-again").hidden = false;
  by("results").setAttribute("aria-busy", "true");
  by("found-title").textContent = sent.photo ? "Looking at your photo…" : "Searching…";
  say(by("found-title").textContent);
  const waiting = element("ul", "cards");
  waiting.append(...skeletons(6));
  by("sections").replaceChildren(waiting);
  by("facts").textContent = "";
  if (sent.photo) showName(sent.photo.name);
  showQuery(sent, box);
  scrollTo({ top: 0 });
}

async function showFailure(error, sent, box, settle) {
  const file = files.get(sent.query);
  if (error.code === "query_expired" && file) {
    await run({ photo: file }, box, settle);
    return;
  }
  if (sent.photo) await render(); // back to what was shown before it was sent
  else showNothing();
  const again = error.status >= 500 || error.status === 0 ? () => run(sent, box, settle) : null;
  showNotice(error, again);
}

function showNothing() {
  by("results").setAttribute("aria-busy", "false");
  by("found-title").textContent = "No answer";
  by("sections").replaceChildren();
  say("");
}

function showName(name) {
  const made = nameElement("p", "query-name", shortName(name), name);
  made.id = "query-name";
  by("query-name").replaceWith(made);
}

function remember(map, key, value) {
  map.delete(key);
  map.set(key, value);
  if (map.size > KEPT) map.delete(map.keys().next().value);
}

let pictured = null; // what the stage shows

async function showQuery(sent, box) {
  tool.set(box);
  by("box-clear").hidden = box === null;
  by("box-hint").hidden = box !== null;
  const file = sent.photo ?? files.get(sent.query);
  const key = sent.image ? `image ${sent.image}` : file ?? `query ${sent.query}`;
  if (pictured === key) return;
  pictured = key;
  const img = by("query-photo");
  try {
    if (file) await showBlob(img, file);
    else await show(img, sent.image ? `/images/${sent.image}` : `/queries/${sent.query}`);
  } catch {
    img.removeAttribute("src"); // a kind of photo that this browser does not know
    if (sent.query) await show(img, `/queries/${sent.query}`).catch(() => {});
    else pictured = null;
  }
}

// -- Found

function fill(asked, box, answer) {
  current = { asked, box, answer };
  browser.hide();
  by("found").hidden = by("pick-again").hidden = false;
  by("results").setAttribute("aria-busy", "false");
  showQuery(asked, box);
  showName(queryName(asked, answer));
  by("query-delete").hidden = facts.read_only || answer.query.image === null;
  by("query-more").hidden = answer.query.itself === null;
  const hits = answer.hits.filter((hit) => hit.score > 0);
  const title = headline(hits);
  by("found-title").textContent = title;
  document.title = `${title} · superfeat`;
  const names = shortNames(hits.map((hit) => hit.name));
  const actions = {
    onWhy: openWhy,
    onSearch: ({ id }) => go({ image: id }),
    onMore: openMenu,
    onSay: facts.read_only ? null : saySame,
  };
  const card = (hit) => hitCard(hit, names.get(hit.name), actions);
  by("sections").replaceChildren(...sortHits(hits).map((part, number) => section(part, number, card)));
  by("facts").textContent = describe(answer);
  say(title);
  by("found-title").focus({ preventScroll: true });
}

// A folded section makes its cards when it is opened.
function section({ title, hits, folded }, number, card) {
  const made = element(folded ? "details" : "section", "part");
  const head = element(folded ? "summary" : "h2", "part-title", `${title} `);
  head.id = `part-${number}`;
  head.append(element("span", "part-count", String(hits.length)));
  const list = element("ul", "cards");
  list.setAttribute("aria-labelledby", head.id);
  made.append(head, list);
  if (folded) made.addEventListener("toggle", () => list.replaceChildren(...hits.map(card)), { once: true });
  else list.append(...hits.map(card));
  return made;
}

function describe({ query, hits, unsearched, seconds }) {
  const what = query.features ? `${query.features.toLocaleString("en")} features` : "its stored words";
  const part = query.box ? " in the box" : "";
  const bare = hits.some((hit) => hit.probability === null) ? ". This index is not calibrated: it has scores, but no probabilities." : "";
  const missing = unsearched > 0 ? ` ${(100 * unsearched).toFixed(unsearched < 0.1 ? 1 : 0)}\u00a0% of the collection did not answer and was not searched; try again in a moment.` : "";
  const own = query.itself && query.image === null ? `It is ${query.itself.name} of this collection. ` : "";
  return `${own}Searched with ${what}${part} in ${seconds < 1 ? `${Math.round(1000 * seconds)}\u00a0ms` : `${seconds.toFixed(1)}\u00a0s`}${bare || (missing && ".")}${missing}`;
}

function queryName(asked, answer) {
  return answer.query.name ?? files.get(asked.query)?.name ?? "Your photo";
}

async function saySame(hit, same) {
  try {
    const { yes, no } = await api.say(current.asked, current.box, hit.id, same);
    hit.said = same;
    document.querySelectorAll(`[data-says="${hit.id}"]`).forEach((button) => press(button, same));
    tell(same === null ? "Taken back." : `Noted. ${yes} yes and ${no} no so far.`);
  } catch (error) {
    hideWhy();
    showNotice(error);
  }
}

function openWhy(hit) {
  go(current.asked, current.box, hit.id);
}

function closeWhy() {
  if (!by("why").open) return;
  const { explain } = place();
  const opener = document.querySelector(`.card-photo[data-id="${CSS.escape(explain ?? "")}"]`);
  if (history.state?.inside) history.back();
  else {
    history.replaceState(null, "", address(current.asked, current.box));
    hideWhy();
  }
  by("why").addEventListener("close", () => opener?.focus(), { once: true });
}

async function deletePhoto(id, name) {
  if (!await askDelete(name)) return;
  try {
    const { images } = await api.remove(id);
    showCount(images);
    forgetList();
    hideWhy();
    say(`${name} was deleted.`);
    if (String(current?.asked?.image) === String(id)) go(null);
    else showFound(current.asked, current.box).then(() => history.replaceState(null, "", address(current.asked, current.box)));
  } catch (error) {
    hideWhy();
    showNotice(error);
  }
}

// -- Messages

let told = 0;

function tell(text) {
  say(text);
  by("toast").textContent = text;
  by("toast").showPopover();
  clearTimeout(told);
  told = setTimeout(() => by("toast").hidePopover(), 2500);
}

function showNotice(error, again = null) {
  by("notice-text").textContent = error.message || "Something went wrong.";
  by("notice-retry").hidden = again === null;
  by("notice-retry").onclick = () => { hideNotice(); again(); };
  by("notice").hidden = false;
  by("notice").scrollIntoView({ block: "nearest" });
}

function hideNotice() {
  by("notice").hidden = true;
}

// -- Hands

function listenToButtons() {
  by("home").addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(null);
  });
  by("pick-again").addEventListener("click", () => go(null).then(() => by("file").focus()));
  by("albums-open").addEventListener("click", () => visit({ albums: 1 }));
  by("album-back").addEventListener("click", () => visit({ albums: 1 }));
  by("notice-close").addEventListener("click", hideNotice);
  by("box-toggle").addEventListener("click", () => {
    const on = !tool.armed;
    tool.arm(on);
    by("box-toggle").setAttribute("aria-pressed", String(on));
    if (on) by("stage").focus();
    say(on ? "Draw a box on the photo, or press Enter for one that arrow keys move." : "");
  });
  by("box-clear").addEventListener("click", () => searchPart(null));
  by("query-delete").addEventListener("click", () => deletePhoto(current.answer.query.image, current.answer.query.name));
  by("query-more").addEventListener("click", ({ currentTarget }) => openMenu(current.answer.query.itself, currentTarget));
  makeClosable(by("why"), closeWhy);
  const opened = () => current?.answer?.hits.find((one) => String(one.id) === place().explain);
  by("why-search").addEventListener("click", () => go({ image: opened().id }));
  by("why-more").addEventListener("click", ({ currentTarget }) => openMenu(opened(), currentTarget));
  by("why-delete").addEventListener("click", () => deletePhoto(opened().id, opened().name));
  prepareAdding(facts, ({ images }) => {
    showCount(images);
    forgetList();
  });
  addEventListener("popstate", render);
}

async function begin() {
  try {
    Object.assign(facts, await api.info());
    showCount(facts.images);
    by("add-open").hidden = by("why-delete").hidden = facts.read_only;
    if (current === null) await paint(); // unless a photo was dropped already; what was told of one stays
  } catch (error) {
    showNotice(error, begin);
  }
}

api.onTokenNeeded(askToken);
listenToFiles({ onFile: searchFile, fail: showNotice });
listenToButtons();
begin();
