// The theme adds a navigation to each block of code, for which screen readers need a name, and puts each table
// into an element that scrolls, which keys must reach.
new MutationObserver(() => {
  document.querySelectorAll("nav.md-code__nav:not([aria-label])").forEach((nav) => {
    nav.setAttribute("aria-label", `Code: ${nav.parentElement.id}`)
  })
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((wrap) => {
    wrap.setAttribute("tabindex", "0")
  })
}).observe(document.documentElement, {childList: true, subtree: true})
