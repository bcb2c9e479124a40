// Photos of the service in <img>. They are fetched (an <img> cannot send a token) once they come near the screen.

import { getBlob } from "./api.js";

const waiting = new Map();
const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    const start = waiting.get(target);
    waiting.delete(target);
    start?.();
  }
}, { rootMargin: "300px" });

// Shows `path` in `img` when it is needed; where it cannot be shown, the reason stands in its place.
export function showLater(img, path, onShown = () => {}) {
  waiting.set(img, () => {
    show(img, path).then(onShown, (error) => {
      const text = document.createElement("span");
      text.className = "missing";
      text.textContent = error.message;
      img.replaceWith(text);
    });
  });
  near.observe(img);
}

export async function show(img, path, options) {
  await showBlob(img, await getBlob(path, options));
}

// The picture stays when its address is given back, so nothing has to be remembered.
export async function showBlob(img, blob) {
  const address = URL.createObjectURL(blob);
  try {
    await new Promise((resolve, reject) => {
      img.onload = resolve;
      img.onerror = () => reject(new Error("This photo cannot be shown here."));
      img.src = address;
    });
  } finally {
    URL.revokeObjectURL(address);
  }
}
