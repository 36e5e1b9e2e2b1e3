// The theme's arrows that open parts of the navigation have no names of their own for screen readers.
document.addEventListener("DOMContentLoaded", () => {
  for (const arrow of document.querySelectorAll("summary")) {
    if (!arrow.textContent.trim()) arrow.setAttribute("aria-label", "Show the pages of this part");
  }
});
