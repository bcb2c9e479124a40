for (const button of document.querySelectorAll("button[data-path]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const field = document.createElement("textarea");
    field.value = button.dataset.path;
    button.after(field);
    field.select();
    button.textContent = document.execCommand("copy") ? "Copied" : "Cannot copy";
    field.remove();
  });
}
