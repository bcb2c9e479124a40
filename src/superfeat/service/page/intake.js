// Photos that people bring: chosen, pasted or dropped; made smaller where the service would not take them.

import { Failure } from "./api.js";

const by = (id) => document.getElementById(id);
const LONGEST = 4096; // pixels of the longer side of a photo that was made smaller: networks look at far fewer
const QUALITY = 0.9;
const STEP = 0.7; // by how much it is made smaller again where it is still too large

export function listenToFiles({ onFile, fail }) {
  by("file").addEventListener("change", (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    if (file) onFile(file);
  });
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((one) => one.type.startsWith("image/"));
    if (file) onFile(file);
    else if (!event.target.closest?.("input")) fail(new Failure("There is no photo in the clipboard."));
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
    if (file) onFile(file);
  });
}

// send(file), with a smaller file where this one has more bytes or pixels than the service takes.
export async function sendFitting(file, limits, send) {
  if (file.size > limits.max_upload) return send(await shrink(file, limits));
  try {
    return await send(file);
  } catch (error) {
    if (error.code !== "too_many_pixels") throw error;
    return send(await shrink(file, limits));
  }
}

// Drawn anew as a JPEG, upright, small enough for the service.
async function shrink(file, { max_upload: bytes, max_pixels: pixels }) {
  let photo;
  try {
    photo = await createImageBitmap(file);
  } catch {
    const most = `${(bytes / 1e6).toFixed(0)}\u00a0MB`;
    throw new Failure(`${file.name} is too large: a photo may have ${most} here, and this browser cannot make it smaller.`);
  }
  try {
    let scale = Math.min(1, LONGEST / Math.max(photo.width, photo.height), Math.sqrt(pixels / (photo.width * photo.height)));
    for (;;) {
      const made = await draw(photo, scale);
      if (made.size <= bytes) return new File([made], `${file.name.replace(/\.\w{1,5}$/, "")}.jpg`, { type: made.type });
      scale *= STEP;
    }
  } finally {
    photo.close();
  }
}

async function draw(photo, scale) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [photo.width, photo.height].map((side) => Math.max(1, Math.floor(scale * side)));
  const pencil = canvas.getContext("2d");
  pencil.imageSmoothingQuality = "high";
  pencil.drawImage(photo, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => { canvas.toBlob(resolve, "image/jpeg", QUALITY); });
}
