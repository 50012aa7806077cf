// The page of one run: its drawing can be moved, and the panel of a step opens in place.
"use strict";
(() => {
  const live = document.getElementById("live");
  const panel = document.getElementById("panel");
  const first = live.querySelector("[data-status]")?.dataset.status;
  let view = null; // how the drawing is moved and scaled, whatever the server sends
  let chosen = new URL(location).searchParams.get("step") || "";
  let returnTo = null;

  if (location.pathname !== new URL(live.dataset.page, location).pathname) {
    history.replaceState(null, "", live.dataset.page); // the answer to a form: a reload must not send it again
  }

  const canvas = () => document.getElementById("canvas");
  const picture = () => canvas()?.querySelector("svg");
  const key = () => `fastroai-view-${canvas()?.dataset.run}`;

  const apply = () => {
    const image = picture();
    if (!image || !view) return;
    canvas().classList.add("moves");
    image.style.transform = `translate(${view.x}px, ${view.y}px) scale(${view.scale})`;
    sessionStorage.setItem(key(), JSON.stringify(view));
  };
  const fit = () => {
    const image = picture();
    if (!image) return;
    const box = canvas().getBoundingClientRect();
    const width = image.viewBox.baseVal.width, height = image.viewBox.baseVal.height;
    const scale = Math.min(1, box.width / width, box.height / height);
    view = { scale, x: (box.width - width * scale) / 2, y: (box.height - height * scale) / 2 };
    apply();
  };
  const zoom = (factor, x, y) => {
    if (!view) return;
    const box = canvas().getBoundingClientRect();
    const atX = x ?? box.width / 2, atY = y ?? box.height / 2;
    const scale = Math.min(4, Math.max(0.05, view.scale * factor));
    const change = scale / view.scale;
    view = { scale, x: atX - (atX - view.x) * change, y: atY - (atY - view.y) * change };
    apply();
  };
  const move = (x, y) => {
    if (!view) return;
    view = { ...view, x: view.x + x, y: view.y + y };
    apply();
  };
  const mark = () => {
    const link = [...live.querySelectorAll("a[data-step]")].find((one) => one.dataset.step === chosen);
    for (const one of live.querySelectorAll("tr[aria-current]")) one.removeAttribute("aria-current");
    link?.closest("tr").setAttribute("aria-current", "true");
    const node = link?.dataset.node ?? chosen;
    for (const one of live.querySelectorAll("[data-node].node")) one.classList.toggle("chosen", one.dataset.node === node);
    return link;
  };
  const draw = () => {
    for (const one of live.querySelectorAll(".zoom")) one.hidden = !picture();
    if (picture()) {
      if (!view) {
        try { view = JSON.parse(sessionStorage.getItem(key())); } catch { view = null; }
      }
      if (view) apply(); else fit();
    }
    mark();
  };

  const open = async (step, from) => {
    chosen = step;
    returnTo = from ?? returnTo;
    const address = new URL(location);
    address.searchParams.set("step", step);
    history.replaceState(history.state, "", address);
    mark();
    const url = new URL(panel.dataset.url, location);
    url.searchParams.set("step", step);
    await htmx.ajax("GET", url.pathname + url.search, { source: panel, target: panel, swap: "innerHTML" });
    panel.hidden = false;
    panel.scrollTop = 0;
    mark()?.closest("tr").scrollIntoView({ block: "nearest" }); // not behind the panel
    panel.querySelector("h2")?.focus({ preventScroll: true });
  };
  const close = () => {
    chosen = "";
    const address = new URL(location);
    address.searchParams.delete("step");
    history.replaceState(history.state, "", address);
    panel.hidden = true;
    mark();
    live.querySelector(`a[data-step="${CSS.escape(returnTo ?? "")}"]`)?.focus();
  };

  document.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    const step = event.target.closest("a[data-step]");
    if (step) {
      event.preventDefault();
      open(step.dataset.step, step.closest("#panel") ? null : step.dataset.step);
      return;
    }
    if (event.target.closest("[data-close]")) {
      event.preventDefault();
      close();
      return;
    }
    const button = event.target.closest("[data-zoom]");
    if (button) {
      if (button.dataset.zoom === "fit") fit();
      else zoom(button.dataset.zoom === "in" ? 1.25 : 0.8);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !panel.hidden) close();
    if (event.target !== canvas() || event.metaKey || event.ctrlKey) return;
    const moves = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
    if (moves[event.key]) move(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
  });

  let drag = null;
  live.addEventListener("pointerdown", (event) => {
    if (event.target.closest("#canvas") && !event.button) drag = { x: event.clientX, y: event.clientY, far: 0 };
  });
  window.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const x = event.clientX - drag.x, y = event.clientY - drag.y;
    drag = { x: event.clientX, y: event.clientY, far: drag.far + Math.abs(x) + Math.abs(y) };
    move(x, y);
  });
  window.addEventListener("pointerup", (event) => {
    const far = drag?.far ?? 0;
    drag = null;
    const node = event.target.closest?.("#canvas .node");
    if (node && far < 4) open(node.dataset.node, node.dataset.node);
  });
  live.addEventListener("wheel", (event) => {
    if (!event.target.closest("#canvas") || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault(); // a wheel alone scrolls the page
    const box = canvas().getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });

  const version = () => mark()?.dataset.version;
  let seen = version();
  const isBusy = () => panel.contains(document.activeElement) && document.activeElement.matches("textarea, input");
  new MutationObserver(() => {
    const status = live.querySelector("[data-status]")?.dataset.status;
    if (status && first && status !== first && !isBusy()) {
      location.reload(); // what can be done with it is different now
      return;
    }
    draw();
    const now = version();
    if (!panel.hidden && chosen && now !== seen && !isBusy()) open(chosen);
    seen = now;
  }).observe(live, { childList: true, subtree: true, characterData: true, attributes: true, attributeFilter: ["data-version", "data-status", "viewBox"] });
  draw();
  const alert = document.querySelector('#panel [role=alert][tabindex], .actions [role=alert][tabindex]');
  alert?.scrollIntoView({ block: "center" });
  alert?.focus({ preventScroll: true });
})();
