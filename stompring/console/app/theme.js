// Applies the chosen theme before the first paint. No module: it must not wait for the others.
(() => {
  try {
    const chosen = localStorage.getItem("stompring.theme");
    if (chosen === '"light"' || chosen === '"dark"') {
      document.documentElement.dataset.theme = chosen.slice(1, -1);
    }
  } catch {
    // Storage is not available: the theme of the system applies.
  }
})();
