// What can be done with a photo: a menu beside the button that opens it, and the photo in full size.

import * as api from "./api.js";
import { element, icon } from "./cards.js";
import { show } from "./photos.js";
import { makeClosable } from "./sheets.js";

const by = (id) => document.getElementById(id);
const GAP = 6; // pixels between the menu and its button

// Gives open(photo, button, files): `files` says whether the service gives files themselves. tell(text) says what was
// done, fail(error) what was not.
export function prepareMenu({ tell, fail, onAlbum }) {
  makeClosable(by("full"));
  by("full-photo").addEventListener("click", () => by("full").classList.toggle("actual"));
  by("menu").addEventListener("keydown", (event) => walk(event));
  return (photo, button, files) => {
    const attempt = (work) => async () => {
      by("menu").hidePopover();
      try {
        await work();
      } catch (error) {
        fail(error);
      }
    };
    const items = [["expand", "See it in full size", attempt(() => showFull(photo))]];
    items.push(["album", "Go to its album", attempt(() => onAlbum(photo))]);
    if (files) {
      items.push(["open", "Open the file", attempt(() => api.post(`/images/${photo.id}/open`).then(() => tell("Opened.")))]);
      items.push(["folder", "Show it in its folder", attempt(() => api.post(`/images/${photo.id}/reveal`).then(() => tell("Shown in its folder.")))]);
      items.push(["save", "Save the original", attempt(() => save(photo))]);
    }
    const what = photo.path ? "path" : "name";
    items.push(["copy", `Copy its ${what}`, attempt(() => copy(photo.path ?? photo.name).then(() => tell(`Its ${what} was copied.`)))]);
    by("menu").replaceChildren(...items.map(item));
    openBeside(button);
  };
}

function item([name, words, onClick]) {
  const made = element("button", "menu-item");
  made.type = "button";
  made.setAttribute("role", "menuitem");
  made.append(icon(name), element("span", "", words));
  made.addEventListener("click", onClick);
  return made;
}

function openBeside(button) {
  const menu = by("menu");
  (button.closest("dialog") ?? document.body).append(menu); // what is outside of an open dialog cannot be clicked
  menu.showPopover();
  const from = button.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const below = from.bottom + GAP + height <= innerHeight;
  const left = Math.max(GAP, Math.min(from.right - width, innerWidth - width - GAP));
  const top = below ? from.bottom + GAP : Math.max(GAP, from.top - GAP - height);
  Object.assign(menu.style, { left: `${left}px`, top: `${top}px` });
  menu.firstElementChild.focus(); // when the menu goes, the browser gives it back to the button
}

function walk(event) {
  const items = [...by("menu").children];
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
}

async function showFull(photo) {
  by("full").classList.remove("actual");
  by("full-name").textContent = photo.name;
  by("full-photo").removeAttribute("src");
  by("full").classList.add("waiting");
  by("full").showModal();
  try {
    await show(by("full-photo"), `/images/${photo.id}/full`);
    by("full-photo").alt = photo.name;
  } catch (error) {
    by("full").close();
    throw error;
  } finally {
    by("full").classList.remove("waiting");
  }
}

async function save(photo) {
  const address = URL.createObjectURL(await api.getBlob(`/images/${photo.id}/file`));
  const link = element("a");
  link.href = address;
  link.download = photo.name.split("/").at(-1);
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

// Browsers give the clipboard to pages of this machine and of https; elsewhere the old way still works.
async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = element("textarea", "visually-hidden", text);
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new api.Failure(`This browser does not let the page copy. It is: ${text}`);
}
