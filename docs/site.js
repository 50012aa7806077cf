// The theme adds a navigation to each block of code. Screen readers need a name for each.
new MutationObserver(() => {
  document.querySelectorAll("nav.md-code__nav:not([aria-label])").forEach((nav) => {
    nav.setAttribute("aria-label", `Code: ${nav.parentElement.id}`)
  })
}).observe(document.documentElement, {childList: true, subtree: true})
