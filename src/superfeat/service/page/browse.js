// Looking around: the photos of the collection, and things as albums; by folder and by the day they were taken.

import * as api from "./api.js";
import { element, iconButton, nameElement, photos, sampleCard, shortName } from "./cards.js";
import { showLater } from "./photos.js";

const by = (id) => document.getElementById(id);
const VIEWS = ["start", "albums", "album"];
const PAGE = 24;
const AGAIN = 1000; // milliseconds after which it is asked again how far the service is

// The values of an address that say which photos are meant.
export function filterOf(values) {
  return Object.fromEntries(["folder", "since", "until"].filter((name) => values.get(name)).map((name) => [name, values.get(name)]));
}

// visit(values) goes to an address of the page; onMore(photo, button) opens the menu of a photo; fail(error, again).
export class Browser {
  constructor({ visit, onMore, fail }) {
    Object.assign(this, { visit, onMore, fail, shown: null, round: 0 });
    by("more").addEventListener("click", () => this.showPhotos());
    by("albums-more").addEventListener("click", () => this.listAlbums(true));
    for (const name of ["folder", "since", "until"]) by(`filter-${name}`).addEventListener("change", () => this.choose());
    by("filter-clear").addEventListener("click", () => this.visit(this.base()));
  }

  hide() {
    this.round += 1;
    this.shown = null;
    VIEWS.forEach((name) => { by(name).hidden = true; });
  }

  // One of the three views; false if it is there already.
  open(view, filter, title) {
    const key = JSON.stringify([view, filter]);
    const there = this.shown === key;
    document.title = title;
    if (there) return false;
    this.hide();
    Object.assign(this, { shown: key, view, filter });
    by(view).hidden = false;
    if (view !== "album") {
      by(`${view}-filter`).append(by("filter"));
      this.showFilter();
    }
    return true;
  }

  // What was found may have changed: photos were added or deleted.
  forget() {
    const { view, filter } = this;
    if (this.shown === null || view === "album") return;
    this.shown = null;
    if (view === "start") this.showStart(filter);
    else this.showAlbums(filter);
  }

  // -- Which photos

  base() {
    return this.view === "albums" ? { albums: 1 } : {};
  }

  choose() {
    const values = Object.fromEntries(["folder", "since", "until"].map((name) => [name, by(`filter-${name}`).value]));
    this.visit({ ...this.base(), ...filterOf(new Map(Object.entries(values))) });
  }

  async showFilter() {
    const { filter } = this;
    by("filter-since").value = filter.since ?? "";
    by("filter-until").value = filter.until ?? "";
    by("filter-clear").hidden = !Object.keys(filter).length;
    try {
      const { folders } = await api.getJson("/folders");
      const options = [["", "All folders"], ...folders.map(({ folder, images }) => [folder, `${folder} (${images})`])];
      by("filter-folder").replaceChildren(...options.map(([value, words]) => new Option(words, value, false, value === (filter.folder ?? ""))));
      by("filter-folder-label").hidden = !folders.length;
    } catch (error) {
      this.fail(error);
    }
  }

  path(where, offset) {
    return `${where}?${new URLSearchParams({ offset, limit: PAGE, ...this.filter })}`;
  }

  // Asks again as long as the service is still reading or comparing, unless something else is shown by then.
  async follow(step) {
    const round = ++this.round;
    try {
      while (await step(() => round === this.round)) {
        await new Promise((resolve) => { setTimeout(resolve, AGAIN); });
        if (round !== this.round) return;
      }
    } catch (error) {
      if (round === this.round) this.fail(error, () => this.follow(step));
    }
  }

  // -- Photos

  showStart(filter) {
    if (!this.open("start", filter, "superfeat")) return;
    by("samples").replaceChildren();
    this.showPhotos();
  }

  showPhotos() {
    this.follow(async (wanted) => {
      const offset = by("samples").childElementCount;
      const page = await api.getJson(this.path("/images", offset));
      if (!wanted()) return false;
      by("samples").append(...page.photos.map((photo) => sampleCard(photo, ({ id }) => this.visit({ image: id }))));
      by("more").hidden = by("samples").childElementCount >= page.images;
      const filtered = Object.keys(this.filter).length > 0;
      by("nothing").hidden = page.images > 0 || page.unread > 0;
      by("nothing").textContent = filtered ? "No photo fits." : "There are no photos in this index yet.";
      by("samples-title").hidden = page.images === 0 && !filtered;
      by("filter").hidden = page.images === 0 && !filtered;
      this.tellState(page, filtered ? photos(page.images) : "");
      return page.unread > 0 && by("samples").childElementCount < PAGE;
    });
  }

  tellState({ unread }, words) {
    by("filter-state").textContent = unread ? `Reading the days of ${photos(unread)}…` : words;
  }

  // -- Albums

  showAlbums(filter) {
    if (!this.open("albums", filter, "Albums · superfeat")) return;
    by("albums-list").replaceChildren();
    this.listAlbums(false);
  }

  listAlbums(more) {
    this.follow(async (wanted) => {
      const offset = more ? by("albums-list").childElementCount : 0;
      const page = await api.getJson(this.path("/albums", offset));
      if (!wanted()) return false;
      const cards = page.found.map((album) => albumCard(album, () => this.visit({ album: album.id })));
      if (more) by("albums-list").append(...cards);
      else by("albums-list").replaceChildren(...cards);
      by("albums-more").hidden = by("albums-list").childElementCount >= page.albums;
      by("albums-text").textContent = describeAlbums(page);
      showProgress(by("albums-progress"), page);
      this.tellState(page, "");
      return !more && (page.working || page.unread > 0);
    });
  }

  // `which` is {album: id} or {albumof: id of a photo}.
  showAlbum(which) {
    if (!this.open("album", which, "Album · superfeat")) return;
    by("album-photos").replaceChildren();
    by("album-title").textContent = "Album";
    by("album-text").textContent = "";
    this.follow(async (wanted) => {
      const path = which.album ? `/albums/${which.album}` : `/images/${which.albumof}/album`;
      const answer = await api.getJson(path);
      if (!wanted()) return false;
      showProgress(by("album-progress"), answer.album ? { working: false } : answer);
      if (answer.album) this.fillAlbum(answer.album, which.albumof);
      else by("album-text").textContent = answer.working ? "Looking for photos of the same thing…" : "No other photo of the same thing is in this collection.";
      return !answer.album && answer.working;
    });
  }

  fillAlbum(album, from) {
    const title = album.kind === "copies" ? `${photos(album.images)}, copies of one` : `${photos(album.images)} of the same thing`;
    by("album-title").textContent = title;
    document.title = `${title} · superfeat`;
    by("album-text").textContent = days(album.photos);
    by("album-photos").replaceChildren(...album.photos.map((photo) => this.albumPhoto(photo, String(photo.id) === from)));
  }

  albumPhoto(photo, here) {
    const card = sampleCard(photo, ({ id }) => this.visit({ image: id }));
    card.classList.toggle("here", here);
    const line = element("div", "sample-line");
    const name = nameElement("span", "sample-caption", shortName(photo.name), photo.name);
    const more = iconButton("more", `More for ${photo.name}`, () => this.onMore(photo, more));
    line.append(name, more);
    card.append(line);
    return card;
  }
}

function albumCard(album, onOpen) {
  const item = element("li");
  const button = element("button", "album-card");
  button.type = "button";
  button.setAttribute("aria-label", `Album of ${photos(album.images)}, with ${album.photos.map((photo) => photo.name).join(", ")}`);
  const cover = element("span", `cover of-${Math.min(album.photos.length, 4)}`);
  for (const photo of album.photos) {
    const img = element("img");
    img.alt = "";
    showLater(img, photo.thumbnail);
    cover.append(img);
  }
  const words = album.kind === "copies" ? `${photos(album.images)}, copies of one` : photos(album.images);
  button.append(cover, element("span", "album-words", words), element("span", "album-days", days(album.photos)));
  button.addEventListener("click", onOpen);
  item.append(button);
  return item;
}

function describeAlbums({ albums, grouped, working, found }) {
  if (working && !found.length) return "Looking for photos of the same thing. Searches go on meanwhile.";
  if (!albums) return "No two photos here show the same thing.";
  return `${albums.toLocaleString("en")} ${albums === 1 ? "thing" : "things"} in ${photos(grouped)}.`;
}

function showProgress(bar, { working, done, of }) {
  bar.hidden = !working;
  if (!working) return;
  bar.max = Math.max(of, 1);
  bar.value = done;
}

// From the first to the last day that is known.
function days(some) {
  const known = some.map(({ taken }) => taken).filter(Boolean).sort();
  if (!known.length) return "";
  return known[0] === known.at(-1) ? known[0] : `${known[0]} to ${known.at(-1)}`;
}
