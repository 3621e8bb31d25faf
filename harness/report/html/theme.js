// Light or dark: the system's choice until the switch is used. The browser remembers the switch.
const theme = {
  preferred: window.matchMedia("(prefers-color-scheme: dark)"),

  is_dark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : this.preferred.matches;
  },

  /** A colour of the style sheet by the name of its variable. */
  color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  },

  of_kernel(kernel) {
    return this.color(`series${Math.max(0, kernels.indexOf(kernel)) % 8}`);
  },

  restore() {
    try {
      const kept = localStorage.getItem("attnbench-theme");
      if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
    } catch { /* a file may have no storage */ }
  },

  switch_button(on_change) {
    const button = el("button", { type: "button", class: "theme" });
    const show = () => {
      button.textContent = this.is_dark() ? "Light" : "Dark";
      button.setAttribute("aria-label", this.is_dark() ? "Switch to light colours" : "Switch to dark colours");
    };
    button.addEventListener("click", () => {
      const next = this.is_dark() ? "light" : "dark";
      document.documentElement.dataset.theme = next;
      try {
        localStorage.setItem("attnbench-theme", next);
      } catch { /* as above */ }
      show();
      on_change();
    });
    this.preferred.addEventListener("change", () => { show(); on_change(); });
    show();
    return button;
  },
};

/** Kernels differ in shape as well as in colour. */
const point_shapes = ["circle", "triangle", "rect", "rectRot", "star", "crossRot", "cross", "rectRounded"];
function shape_of(kernel) {
  return point_shapes[Math.max(0, kernels.indexOf(kernel)) % point_shapes.length];
}
