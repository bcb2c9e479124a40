// The page: what is asked stands in its address, so that back, forward and reload work.

import * as api from "./api.js";
import { BoxTool } from "./box.js";
import { hitCard, LIKELY, sampleCard, shortName, skeletons, SURE } from "./cards.js";
import { show, showBlob } from "./photos.js";
import { askDelete, askToken, hideWhy, makeClosable, prepareAdding, showWhy } from "./sheets.js";

const by = (id) => document.getElementById(id);
const PAGE = 24;
const KEPT = 30;
const facts = { images: 0, read_only: true, max_upload: Infinity };
const answers = new Map(); // by address without `explain`: going back searches nothing again
const files = new Map(); // uploads by the id that the service gave them
let searching = new AbortController();
let current = null; // {asked, box, answer} that is shown
let listed = 0;

const say = (text) => { by("status").textContent = text; };
const tool = new BoxTool(by("stage"), by("box"), { onSearch: searchPart, say });

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
  history.pushState({ inside: true }, "", address(asked, box, explain));
  return render();
}

async function render() {
  const { asked, box, explain } = place();
  hideNotice();
  if (asked === null) {
    hideWhy();
    showStart();
    return;
  }
  const shown = current !== null && address(current.asked, current.box) === address(asked, box);
  if (!shown || by("found").hidden) await showFound(asked, box);
  const hit = current?.answer?.hits.find((one) => String(one.id) === explain);
  if (hit) await showWhy(current.asked, current.box, hit);
  else hideWhy();
}

// -- Start

function showStart() {
  searching.abort();
  current = null;
  document.title = "superfeat";
  by("found").hidden = by("pick-again").hidden = true;
  by("start").hidden = false;
  if (!listed) showMore();
}

async function showMore() {
  try {
    const page = await api.list(listed, PAGE);
    listed += page.photos.length;
    by("samples").append(...page.photos.map((photo) => sampleCard(photo, ({ id }) => go({ image: id }))));
    by("more").hidden = listed >= page.images;
    by("nothing").hidden = page.images > 0;
    by("samples-title").hidden = page.images === 0;
  } catch (error) {
    showNotice(error, showMore);
  }
}

// What is listed is out of date: photos were added or deleted.
function forgetList() {
  listed = 0;
  by("samples").replaceChildren();
  answers.clear();
  if (!by("start").hidden) showMore();
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
  if (file.size > facts.max_upload) {
    const most = (facts.max_upload / 1e6).toFixed(0);
    return showNotice(new api.Failure(`${file.name} is too large: a photo may have ${most} MB here.`));
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
    const answer = await api.search(sent, box, signal);
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
  by("start").hidden = true;
  by("found").hidden = by("pick-again").hidden = false;
  by("results").setAttribute("aria-busy", "true");
  by("found-title").textContent = sent.photo ? "Looking at your photo…" : "Searching…";
  say(by("found-title").textContent);
  by("likely").replaceChildren(...skeletons(6));
  by("less").hidden = true;
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
  by("likely").replaceChildren();
  by("unlikely").replaceChildren();
  say("");
}

function showName(name) {
  by("query-name").textContent = shortName(name);
  by("query-name").title = name;
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
  by("start").hidden = true;
  by("found").hidden = by("pick-again").hidden = false;
  by("results").setAttribute("aria-busy", "false");
  showQuery(asked, box);
  showName(answer.query.name ?? files.get(asked.query)?.name ?? "Your photo");
  by("query-delete").hidden = facts.read_only || answer.query.image === null;
  const hits = answer.hits.filter((hit) => hit.id !== answer.query.image && hit.score > 0);
  const judged = hits.some((hit) => hit.probability !== null);
  const likely = judged ? hits.filter((hit) => hit.probability >= LIKELY) : hits;
  const less = judged ? hits.filter((hit) => hit.probability < LIKELY) : [];
  const title = headline(likely, less, judged);
  by("found-title").textContent = title;
  document.title = `${title} · superfeat`;
  const card = (hit) => hitCard(hit, { onWhy: openWhy, onSearch: ({ id }) => go({ image: id }) });
  by("likely").replaceChildren(...likely.map(card));
  by("unlikely").replaceChildren(...less.map(card));
  by("less").hidden = less.length === 0;
  by("less-title").hidden = likely.length === 0;
  by("facts").textContent = describe(answer);
  say(title);
  by("found-title").focus({ preventScroll: true });
}

function headline(likely, less, judged) {
  if (!likely.length && !less.length) return "Nothing alike was found";
  if (!judged) return likely.length === 1 ? "The photo that is most alike" : `${likely.length} photos, most alike first`;
  if (!likely.length) return "No photo of the same thing. These are most alike";
  const sure = likely.filter((hit) => hit.probability >= SURE).length;
  const perhaps = likely.length - sure;
  if (!sure) return `${photos(perhaps)} that may show the same thing`;
  return `${photos(sure)} of the same thing${perhaps ? `, ${perhaps} more perhaps` : ""}`;
}

function photos(count) {
  return `${count.toLocaleString("en")} ${count === 1 ? "photo" : "photos"}`;
}

function describe({ query, hits, seconds }) {
  const what = query.features ? `${query.features.toLocaleString("en")} features` : "its stored words";
  const part = query.box ? " in the box" : "";
  const bare = hits.some((hit) => hit.probability === null) ? ". This index is not calibrated: it has scores, but no probabilities." : "";
  return `Searched with ${what}${part} in ${seconds < 1 ? `${Math.round(1000 * seconds)}\u00a0ms` : `${seconds.toFixed(1)}\u00a0s`}${bare}`;
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

function listenToFiles() {
  by("file").addEventListener("change", (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    if (file) searchFile(file);
  });
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((one) => one.type.startsWith("image/"));
    if (file) searchFile(file);
    else if (!event.target.closest?.("input")) showNotice(new api.Failure("There is no photo in the clipboard."));
  });
  let depth = 0;
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  const veil = (on) => by("veil").classList.toggle("shown", on);
  addEventListener("dragenter", (event) => { if (carriesFiles(event)) veil(++depth > 0); });
  addEventListener("dragleave", (event) => { if (carriesFiles(event)) veil(--depth > 0); });
  addEventListener("dragover", (event) => { if (carriesFiles(event)) event.preventDefault(); });
  addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    veil((depth = 0) > 0);
    const [file] = event.dataTransfer.files;
    if (file) searchFile(file);
  });
}

function listenToButtons() {
  by("home").addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(null);
  });
  by("pick-again").addEventListener("click", () => go(null).then(() => by("file").focus()));
  by("more").addEventListener("click", showMore);
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
  makeClosable(by("why"), closeWhy);
  const opened = () => current?.answer?.hits.find((one) => String(one.id) === place().explain);
  by("why-search").addEventListener("click", () => go({ image: opened().id }));
  by("why-delete").addEventListener("click", () => deletePhoto(opened().id, opened().name));
  prepareAdding(({ images }) => {
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
    if (current === null) await render(); // unless a photo was dropped already
  } catch (error) {
    showNotice(error, begin);
  }
}

api.onTokenNeeded(askToken);
listenToFiles();
listenToButtons();
begin();
