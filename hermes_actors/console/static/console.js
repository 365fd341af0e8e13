// What pages cannot do without a script. Every page works without this file.
"use strict";
(() => {
  const root = document.documentElement;
  const THEMES = ["system", "light", "dark"];
  const stored = () => {
    try { return localStorage.getItem("theme") || "system"; } catch { return "system"; }
  };
  const show = (theme) => {
    if (theme === "system") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", theme);
  };
  // At once, so that the page does not flash in the other theme.
  show(stored());

  document.addEventListener("DOMContentLoaded", () => {
    for (const each of document.querySelectorAll(".needs-js")) each.hidden = false;
    const theme = document.querySelector("[data-theme-switch]");
    const label = theme.querySelector("span");
    label.textContent = stored();
    theme.addEventListener("click", () => {
      const next = THEMES[(THEMES.indexOf(label.textContent) + 1) % THEMES.length];
      try { localStorage.setItem("theme", next); } catch { /* Only this page then. */ }
      label.textContent = next;
      show(next);
    });
    const lost = document.getElementById("lost");
    let updated = new Date();
    const fail = (event) => {
      // Only what the page asks for by itself; an action shows its own error.
      if (!event.detail.pathInfo?.requestPath?.endsWith("/live")) return;
      lost.querySelector("[data-lost-since]").textContent = updated.toISOString().slice(11, 19) + " UTC";
      lost.hidden = false;
    };
    document.body.addEventListener("htmx:sendError", fail);
    document.body.addEventListener("htmx:responseError", fail);
    document.body.addEventListener("htmx:afterOnLoad", () => {
      updated = new Date();
      lost.hidden = true;
    });
  });

  document.addEventListener("keydown", (event) => {
    const isWriting = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key === "/" && !isWriting && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      document.querySelector("header input[type=search]").focus();
    } else if (event.key === "Escape" && isWriting) {
      event.target.blur();
    }
  });

  document.addEventListener("change", async (event) => {
    const { into, selectAll } = event.target.dataset;
    if (selectAll !== undefined) {
      for (const each of event.target.form.elements) if (each.name === "id") each.checked = event.target.checked;
    }
    if (into) document.getElementById(into).value = await event.target.files[0].text();
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(button.dataset.copy);
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  });
})();
